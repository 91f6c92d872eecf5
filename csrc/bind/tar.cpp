// bind/tar.cpp: the index of an archive for millstream.games, made without the interpreter's lock.
#include "core/tar.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "bind/module.h"

using namespace nb::literals;

namespace {

millstream::TarIndex indexed(int descriptor, std::uint32_t most_bytes) {
  try {
    nb::gil_scoped_release released;
    const millstream::TarFile file(descriptor);
    return millstream::TarReader(file, most_bytes).index();
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
}

auto tar_index(int descriptor, std::uint32_t most_bytes) {
  auto index = indexed(descriptor, most_bytes);
  nb::dict skipped;
  for (std::size_t i = 0; i < index.skipped.size(); ++i)
    if (index.skipped[i]) skipped[millstream::tar_skip_names[i]] = index.skipped[i];
  return std::tuple(made(std::move(index.offsets)), made(std::move(index.sizes)), made(std::move(index.inflated)),
                    made(std::move(index.gzip)), skipped, std::string(index.problem), index.problem_at, index.has_end);
}

}  // namespace

void register_tar(nb::module_& m) {
  m.def("tar_index", &tar_index, "descriptor"_a, "most_bytes"_a,
        nb::sig("def tar_index(descriptor: int, most_bytes: int) -> tuple[NDArray[numpy.uint64], NDArray[numpy.uint32], "
                "NDArray[numpy.uint32], NDArray[numpy.uint8], dict[str, int], str, int, bool]"),
        "Members of an uncompressed tar that may be games: (offsets, sizes, inflated sizes, whether they are gzip, how "
        "many others by reason, what ended the index early or nothing, where, whether the archive has its end).");
}
