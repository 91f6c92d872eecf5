// bind/games.cpp: frames of self-play games for millstream.games. All of it works without the interpreter's lock.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>

#include "bind/module.h"
#include "core/frames.h"

using namespace nb::literals;
using namespace millstream;

namespace {

using Bytes = Array<const std::uint8_t>;
// The bytes of all fields, ends, moves, probabilities.
using MadeFrames = std::tuple<Made<std::uint8_t>, Made<std::uint32_t>, Made<std::uint16_t>, Made<float>>;

template <typename To, typename From>
Made<To> owned(std::unique_ptr<From[]> values, std::size_t size) {
  From* data = values.release();
  nb::capsule owner(data, [](void* kept) noexcept { delete[] static_cast<From*>(kept); });
  return {reinterpret_cast<To*>(data), {size}, owner};
}

MadeFrames handed_over(FrameStore&& store) {
  const auto entries = store.entries();
  return {owned<std::uint8_t>(std::move(store.fields), store.size() * sizeof(Frame)), made(std::move(store.ends)),
          owned<std::uint16_t>(std::move(store.moves), entries), owned<float>(std::move(store.probabilities), entries)};
}

MadeFrames read_chunk(Bytes raw, std::optional<Array<const std::uint32_t>> plies) {
  std::optional<FrameStore> store;
  {
    nb::gil_scoped_release unlocked;  // the arguments keep their buffers alive
    if (plies) store.emplace(read_frames(view(raw), view(*plies)));
    else store.emplace(read_frames(view(raw)));
  }
  return handed_over(std::move(*store));
}

}  // namespace

void register_games(nb::module_& m) {
  nb::exception<FrameError>(m, "FrameError", PyExc_ValueError);
  m.def("read_frames", &read_chunk, "raw"_a, "plies"_a.none() = nb::none(),
        "The frames of a chunk, or some of them: (bytes of the fields, ends, moves, probabilities).");
}
