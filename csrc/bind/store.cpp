// bind/store.cpp: token files and zstd for millstream.store and millstream.storage.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bind/module.h"
#include "core/kernels/hash.h"
#include "core/kernels/weights.h"
#include "core/memory/durable.h"
#include "core/store/compressed.h"
#include "core/store/narrow.h"
#include "core/store/tokenfile.h"
#include "core/store/zstd.h"

using namespace nb::literals;

namespace {

using Fields = std::tuple<char, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t>;

std::span<const std::byte> bytes_of(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

Fields parse(const nb::bytes& first_bytes, std::uint64_t file_bytes, char kind) {
  const auto frame = millstream::parse_frame(bytes_of(first_bytes), file_bytes, kind);
  return {frame.kind, frame.dtype, frame.count, frame.bound, frame.tag, frame.documents, frame.block};
}

nb::bytes encode(char kind, std::uint32_t dtype, std::uint64_t count, std::uint64_t bound, std::uint64_t tag,
                 std::uint64_t documents, std::uint32_t block) {
  const auto out = millstream::encode_frame({kind, dtype, count, millstream::frame_bytes, bound, tag, documents, block});
  return nb::bytes(out.data(), out.size());
}

using Octets = Array<const std::uint8_t>;

nb::bytes pack(Octets data, std::size_t block_bytes, int level, Array<std::uint64_t> ends) {
  std::vector<std::byte> packed;
  {
    nb::gil_scoped_release unlocked;  // the arguments keep their buffers alive
    packed = millstream::pack_blocks(std::as_bytes(view(data)), block_bytes, level, view(ends));
  }
  return nb::bytes(packed.data(), packed.size());
}

std::tuple<std::size_t, std::string> unpack(Octets packed, Array<const std::uint64_t> ends, std::size_t block_bytes,
                                            Array<std::uint8_t> out) {
  nb::gil_scoped_release unlocked;
  auto done = millstream::unpack_blocks(std::as_bytes(view(packed)), view(ends), block_bytes,
                                        std::as_writable_bytes(view(out)));
  return {done.blocks, std::move(done.reason)};
}

template <typename T>
void narrow(Array<const std::uint32_t> ids, Array<const std::int64_t> ends, std::optional<std::uint32_t> eos,
            Array<T> out) {
  nb::gil_scoped_release unlocked;
  millstream::narrow_documents<T>(view(ids), view(ends), eos, view(out));
}

void weigh_documents(Array<const std::uint32_t> tokens, Array<const std::int64_t> ends, Array<std::uint64_t> words) {
  if (ends.size() != words.size()) throw std::invalid_argument("`words` has another length");
  nb::gil_scoped_release unlocked;
  millstream::weigh_documents(view(tokens), view(ends), view(words));
}

// The buffers of Python objects, held for as long as this lives.
class Buffers {
 public:
  explicit Buffers(const nb::sequence& objects) {
    views_.reserve(nb::len(objects));
    for (const auto object : objects) {
      if (PyObject_GetBuffer(object.ptr(), &views_.emplace_back(), PyBUF_SIMPLE) == 0) continue;
      views_.pop_back();
      release();
      throw nb::python_error();
    }
  }
  ~Buffers() { release(); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  std::vector<iovec> parts() const {
    std::vector<iovec> found;
    for (const auto& view : views_) found.push_back({view.buf, static_cast<std::size_t>(view.len)});
    return found;
  }

 private:
  void release() {
    for (auto& view : views_) PyBuffer_Release(&view);
    views_.clear();
  }

  std::vector<Py_buffer> views_;
};

void write_parts(int file, const nb::sequence& objects) {
  const Buffers buffers(objects);
  auto parts = buffers.parts();
  int failure = 0;
  {
    nb::gil_scoped_release released;
    try {
      millstream::write_synced(file, parts);
    } catch (const std::system_error& error) {
      failure = error.code().value();
    }
  }
  if (!failure) return;
  errno = failure;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

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

void register_store(nb::module_& m) {
  m.def("write_synced", &write_parts, "file"_a, "parts"_a, nb::sig("def write_synced(file: int, parts: Sequence[bytes | memoryview]) -> None"),
        "Write parts end to end from the beginning of a file, and wait until they are on the disk.");
  m.def("xxh64", [](Array<const std::uint8_t> data, std::uint64_t seed) {
    nb::gil_scoped_release unlocked;  // the argument keeps its buffer alive
    return millstream::xxh64(std::as_bytes(view(data)), seed);
  }, "data"_a, "seed"_a = 0, "XXH64 of an array of bytes.");
  m.def("hash_blocks", [](Array<const std::uint8_t> data, std::size_t block_bytes, Array<std::uint64_t> out) {
    nb::gil_scoped_release unlocked;
    millstream::hash_blocks(std::as_bytes(view(data)), block_bytes, view(out));
  }, "data"_a, "block_bytes"_a, "out"_a, "Put the XXH64 of each block of `data` into `out`.");
  constexpr auto narrowing = "Copy documents into `out`, each followed by `eos` if there is one.";
  m.def("weight_codes", [](Array<const double> weights, Array<std::uint8_t> codes) {
    nb::gil_scoped_release unlocked;
    return millstream::codes_of(view(weights), view(codes));
  }, "weights"_a, "codes"_a, "Write the code of each weight; gives the place of the first that is no weight, or their number.");
  m.def("weigh_documents", &weigh_documents, "tokens"_a, "ends"_a, "words"_a,
        "Write what the targets of each document weigh: their number, and above it their weight in hundredths.");
  m.def("narrow_documents", &narrow<std::uint16_t>, "ids"_a, "ends"_a, "eos"_a.none(), "out"_a, narrowing);
  m.def("narrow_documents", &narrow<std::uint32_t>, "ids"_a, "ends"_a, "eos"_a.none(), "out"_a, narrowing);
  m.def("narrow_documents", &narrow<std::int32_t>, "ids"_a, "ends"_a, "eos"_a.none(), "out"_a, narrowing);
  m.def("parse_frame", &parse, "first_bytes"_a, "file_bytes"_a, "kind"_a,
        "Check a frame against the file's size: (kind, dtype, count, bound, tag, documents, block).");
  m.def("encode_frame", &encode, "kind"_a, "dtype"_a, "count"_a, "bound"_a, "tag"_a, "documents"_a,
        "block"_a, "The 64 bytes of a frame.");
  m.def("pack_blocks", &pack, "data"_a, "block_bytes"_a, "level"_a, "ends"_a,
        "Pack each block of `data` into a frame of its own; `ends` hears where each ends.");
  m.def("unpack_blocks", &unpack, "packed"_a, "ends"_a, "block_bytes"_a, "out"_a,
        "Decode blocks until one is damaged: (blocks decoded, why the next one could not be).");
  m.def("find_frames", [](Octets packed, Array<std::uint64_t> ends) {
    return millstream::find_frames(std::as_bytes(view(packed)), view(ends));
  }, "packed"_a, "ends"_a, "Find the zstd frames at the start of `packed` by their headers; tells how many are whole.");
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
