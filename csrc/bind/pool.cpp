// bind/pool.cpp: buffers of one size as arrays; one goes back to its pool when the last array that looks at it is gone.
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <utility>

#include "bind/module.h"
#include "core/pool.h"

using namespace nb::literals;
using namespace millstream;

namespace {

struct Taken {
  std::shared_ptr<Pool> pool;
  std::byte* data;
};

nb::object take(std::shared_ptr<Pool> pool) {
  auto* const data = pool->try_take();
  if (!data) return nb::none();
  const std::size_t bytes = pool->buffer_bytes();
  const nb::capsule owner(new Taken{std::move(pool), data}, [](void* taken) noexcept {
    const std::unique_ptr<Taken> out(static_cast<Taken*>(taken));
    out->pool->give_back(out->data);
  });
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(data, {bytes}, owner));
}

}  // namespace

void register_pool(nb::module_& m) {
  nb::class_<Pool>(m, "BytePool", "Buffers of one size, aligned, used again and again.")
      .def(nb::init<std::size_t, std::shared_ptr<Budget>, std::size_t>(), "bytes"_a, "budget"_a, "keep"_a = 4)
      .def_prop_ro("out", &Pool::out, "Buffers in somebody's hands.")
      .def("take", &take, nb::sig("def take(self) -> NDArray[numpy.uint8] | None"), "A buffer; None where the budget has no room.");
}
