"""Lucerne on OpenCL devices."""

from lucerne_opencl.backend import OpenCL as OpenCL
from lucerne_opencl.fast import FastOpenCL as FastOpenCL
