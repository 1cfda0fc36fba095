"""`lucerne.export`: modules as graphs that run without their source."""

from lucerne._src.capture.trace.decompositions import (
    default_decompositions as default_decompositions,
)
from lucerne.export.aot.door import BuiltProgram as BuiltProgram
from lucerne.export.aot.door import build as build
from lucerne.export.dims import Dim as Dim
from lucerne.export.dims import dims as dims
from lucerne.export.door import export as export
from lucerne.export.errors import ArgumentError as ArgumentError
from lucerne.export.errors import ExportError as ExportError
from lucerne.export.file import load as load
from lucerne.export.file import save as save
from lucerne.export.program import ExportedModule as ExportedModule
from lucerne.export.program import ExportedProgram as ExportedProgram
from lucerne.export.signature import ExportGraphSignature as ExportGraphSignature
from lucerne.export.signature import InputKind as InputKind
from lucerne.export.signature import InputSpec as InputSpec
from lucerne.export.signature import OutputKind as OutputKind
from lucerne.export.signature import OutputSpec as OutputSpec
