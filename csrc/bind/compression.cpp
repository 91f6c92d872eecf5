// bind/compression.cpp: zstd for millstream.compression.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bind/module.h"
#include "core/zstd.h"

using namespace nb::literals;

namespace {

using Bytes = Array<const std::uint8_t>;

nb::bytes compress(Bytes data, int level) {
  std::optional<millstream::ZstdCompressor> compressor;
  std::span<const std::byte> out;
  {
    nb::gil_scoped_release unlocked;  // the argument keeps its buffer alive
    compressor.emplace(level);
    out = (*compressor)(std::as_bytes(view(data)));
  }
  return nb::bytes(out.data(), out.size());
}

void decompress(Bytes frame, Array<std::uint8_t> out) {
  nb::gil_scoped_release unlocked;
  millstream::ZstdDecompressor()(std::as_bytes(view(frame)), std::as_writable_bytes(view(out)));
}

std::tuple<std::size_t, std::size_t> step(millstream::ZstdStream& stream, Bytes in, Array<std::uint8_t> out) {
  nb::gil_scoped_release unlocked;
  const auto done = stream(std::as_bytes(view(in)), std::as_writable_bytes(view(out)));
  return {done.consumed, done.produced};
}

}  // namespace

void register_compression(nb::module_& m) {
  nb::exception<millstream::ZstdError>(m, "ZstdError", PyExc_ValueError);
  nb::exception<millstream::ZstdMissing>(m, "ZstdMissing", PyExc_ImportError);
  m.def("look_for_zstd", &millstream::look_for_zstd, "names"_a,
        "Look for the library zstd under these names from now on, unless it was found.");
  m.def("has_zstd", [] { return millstream::find_zstd() != nullptr; }, "Whether the library zstd is found.");
  m.def("zstd_compress", &compress, "data"_a, "level"_a, "One zstd frame that holds `data`, with a checksum.");
  m.def("zstd_content_size", [](Bytes frame) { return millstream::zstd_content_size(std::as_bytes(view(frame))); },
        "frame"_a, "The size that a frame says it has when decoded, or None.");
  m.def("zstd_decompress", &decompress, "frame"_a, "out"_a, "Decode one frame into an array of exactly its size.");
  nb::class_<millstream::ZstdStream>(m, "ZstdStream", "Decodes a stream of zstd frames piece by piece.")
      .def(nb::init<int>(), "window_log_max"_a = 27)
      .def("step", &step, "data"_a, "out"_a, "Decode from `data` into `out`: (bytes consumed, bytes produced).")
      .def_prop_ro("between_frames", &millstream::ZstdStream::between_frames,
                   "Whether everything so far was whole frames.");
}
