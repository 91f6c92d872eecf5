// bind/store.cpp: checksums and frames for millstream.store.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include "bind/module.h"
#include "core/hash.h"
#include "core/narrow.h"
#include "core/tokenfile.h"

using namespace nb::literals;

namespace {

using Fields = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;

std::span<const std::byte> bytes_of(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

Fields parse(const nb::bytes& first_bytes, std::uint64_t file_bytes, char kind) {
  const auto frame = millstream::parse_frame(bytes_of(first_bytes), file_bytes, kind);
  return {frame.dtype, frame.count, frame.bound, frame.tag, frame.documents};
}

nb::bytes encode(char kind, std::uint32_t dtype, std::uint64_t count, std::uint64_t bound, std::uint64_t tag,
                 std::uint64_t documents) {
  const auto out = millstream::encode_frame({kind, dtype, count, millstream::frame_bytes, bound, tag, documents});
  return nb::bytes(out.data(), out.size());
}

template <typename T>
void narrow(Array<const std::uint32_t> ids, Array<const std::int64_t> ends, std::optional<std::uint32_t> eos,
            Array<T> out) {
  nb::gil_scoped_release unlocked;
  millstream::narrow_documents<T>(view(ids), view(ends), eos, view(out));
}

}  // namespace

void register_store(nb::module_& m) {
  m.def("xxh64", [](Array<const std::uint8_t> data, std::uint64_t seed) {
    nb::gil_scoped_release unlocked;  // the argument keeps its buffer alive
    return millstream::xxh64(std::as_bytes(view(data)), seed);
  }, "data"_a, "seed"_a = 0, "XXH64 of an array of bytes.");
  m.def("hash_blocks", [](Array<const std::uint8_t> data, std::size_t block_bytes, Array<std::uint64_t> out) {
    nb::gil_scoped_release unlocked;
    millstream::hash_blocks(std::as_bytes(view(data)), block_bytes, view(out));
  }, "data"_a, "block_bytes"_a, "out"_a, "Put the XXH64 of each block of `data` into `out`.");
  constexpr auto narrowing = "Copy documents into `out`, each followed by `eos` if there is one.";
  m.def("narrow_documents", &narrow<std::uint16_t>, "ids"_a, "ends"_a, "eos"_a.none(), "out"_a, narrowing);
  m.def("narrow_documents", &narrow<std::uint32_t>, "ids"_a, "ends"_a, "eos"_a.none(), "out"_a, narrowing);
  m.def("narrow_documents", &narrow<std::int32_t>, "ids"_a, "ends"_a, "eos"_a.none(), "out"_a, narrowing);
  m.def("parse_frame", &parse, "first_bytes"_a, "file_bytes"_a, "kind"_a,
        "Check a frame against the file's size: (dtype, count, bound, tag, documents).");
  m.def("encode_frame", &encode, "kind"_a, "dtype"_a, "count"_a, "bound"_a, "tag"_a, "documents"_a,
        "The 64 bytes of a frame.");
}
