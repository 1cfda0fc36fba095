"""`lucerne.generate`: text from language models, one token after the other."""

from __future__ import annotations

from lucerne._src.generate.batching import Batcher as Batcher
from lucerne._src.generate.batching import GenerationRequest as GenerationRequest
from lucerne._src.generate.beam import Beam as Beam
from lucerne._src.generate.beam import beam_search as beam_search
from lucerne._src.generate.cache import KVCache as KVCache
from lucerne._src.generate.decoding import Decoding as Decoding
from lucerne._src.generate.decoding import generate as generate
from lucerne._src.generate.gguf_models import load_decoder as load_decoder
from lucerne._src.generate.models import Decoder as Decoder
from lucerne._src.generate.models import DecoderConfig as DecoderConfig
from lucerne._src.generate.sampling import GREEDY as GREEDY
from lucerne._src.generate.sampling import Sampler as Sampler
from lucerne._src.generate.sampling import Sampling as Sampling
from lucerne._src.generate.text import TextStream as TextStream
from lucerne._src.generate.text import Vocabulary as Vocabulary
from lucerne._src.generate.text import load_vocabulary as load_vocabulary
