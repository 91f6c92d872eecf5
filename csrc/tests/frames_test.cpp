// tests/frames_test.cpp: chunks become columns and tensors within their bounds, whatever is in them.
#include "core/chess/frames.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"
#include "core/chess/planes.h"
#include "random.h"

using namespace millstream;

namespace {

// Bytes of exactly their size, so that a sanitizer sees every step beyond them.
using Raw = std::vector<std::uint8_t>;

const frames::Layout& layout(std::uint32_t version) { return frames::layouts[version - 3]; }

// So many frames without a legal move and with zeros everywhere else.
Raw chunk(std::uint32_t version, std::size_t count) {
  const auto& of = layout(version);
  const std::uint32_t format = 1;
  const float illegal = -1;
  Raw raw(of.bytes() * count);
  for (std::size_t i = 0; i < count; ++i) {
    auto* at = raw.data() + i * of.bytes();
    std::memcpy(at, &version, 4);
    if (of.head == 8) std::memcpy(at + 4, &format, 4);
    for (std::size_t entry = 0; entry < policy_size; ++entry) std::memcpy(at + of.head + 4 * entry, &illegal, 4);
  }
  return raw;
}

FrameColumns view_of(const FrameStore& store) {
  return {{store.fields.get(), store.size()}, store.ends, {store.moves.get(), store.entries()},
          {store.probabilities.get(), store.entries()}};
}

void versions_have_their_sizes() {
  const std::size_t sizes[] = {8276, 8292, 8308, 8356, 8396};
  for (std::uint32_t version = 3; version <= 7; ++version) CHECK(layout(version).bytes() == sizes[version - 3]);
}

void older_versions_say_what_they_can() {
  for (std::uint32_t version = 3; version <= 7; ++version) {
    const auto store = read_frames(chunk(version, 3));
    const auto& frame = store.fields[1];
    CHECK(store.size() == 3 && store.entries() == 0);
    CHECK(frame.version == version && frame.input_format == 1);
    CHECK(frame.plies_left == (version < 5 ? 2.0F : 0.0F));
    CHECK(frame.result_d == (version < 6 ? 1.0F : 0.0F));
    CHECK(std::isnan(frame.orig_q) == (version < 6));
    CHECK(frame.next_played_idx == (version < 7 ? unknown_move : 0));
  }
}

void entries_at_every_place_are_found() {
  auto raw = chunk(6, 1);
  for (const std::size_t entry : {0u, 1u, 15u, 16u, 1855u, 1856u, 1857u}) {
    const auto value = static_cast<float>(entry);
    std::memcpy(raw.data() + 8 + 4 * entry, &value, 4);
  }
  const auto store = read_frames(raw);
  CHECK(store.entries() == 7);
  for (std::size_t i = 0; i < 7; ++i) CHECK(store.probabilities[i] == static_cast<float>(store.moves[i]));
}

void full_policies_make_the_columns_grow() {
  Raw raw(layout(7).bytes() * 9);
  for (std::size_t i = 0; i < 9; ++i) raw[i * layout(7).bytes()] = 7, raw[i * layout(7).bytes() + 4] = 1;
  auto store = read_frames(raw);
  CHECK(store.entries() == 9 * policy_size);
  for (std::size_t i = 0; i < store.entries(); ++i) CHECK(store.moves[i] == i % policy_size);
  store.fit();
  CHECK(store.entries() == 9 * policy_size && store.moves[9 * policy_size - 1] == policy_size - 1);
}

void what_was_not_needed_is_given_back() {
  Raw raw(layout(7).bytes());
  raw[0] = 7, raw[4] = 1;
  const float illegal = -1;
  for (std::size_t i = 1; i < policy_size; ++i) std::memcpy(&raw[layout(7).head + i * 4], &illegal, 4);
  auto store = read_frames(raw);
  store.fit();
  CHECK(store.entries() == 1 && store.moves[0] == 0 && store.probabilities[0] == 0);
  store.make_room(store.entries());
  store.moves[policy_size] = 5;  // a sanitizer would see that there was no room
}

void what_is_no_chunk_is_refused() {
  CHECK_THROWS(read_frames(Raw{}), FrameError);
  const auto good = chunk(6, 2);
  for (std::size_t size = 1; size < good.size(); size += 997) {
    if (size != layout(6).bytes()) CHECK_THROWS(read_frames(Raw(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))), FrameError);
  }
  const std::uint32_t there[] = {1, 0, 1}, beyond[] = {2};
  CHECK(read_frames(good, there).size() == 3);
  CHECK_THROWS(read_frames(good, beyond), FrameError);
}

// Numbers that begin on a line of the cache, or so many behind one.
template <typename Real>
class Numbers {
 public:
  Numbers(std::size_t size, std::size_t behind) : lines_(size * sizeof(Real) / 64 + 2), behind_(behind), size_(size) {}
  operator std::span<Real>() { return {reinterpret_cast<Real*>(lines_.data()) + behind_, size_}; }
  Real operator[](std::size_t i) const { return reinterpret_cast<const Real*>(lines_.data())[behind_ + i]; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
  std::size_t behind_, size_;
};

void check_tensors(const FrameColumns& columns, std::size_t behind) {
  Numbers<float> planes(2 * 7168, behind), policy(2 * policy_size, behind), values(36, behind);
  Numbers<Half> half_planes(2 * 7168, behind), half_policy(2 * policy_size, behind), half_values(36, behind);
  std::vector<std::uint64_t> boards(224);
  std::vector<float> rule50(2);
  fill_tensors<float>(columns, planes, policy, values);
  fill_tensors<Half>(columns, half_planes, half_policy, half_values);
  fill_boards(columns.fields, boards, rule50);
  for (std::size_t i = 0; i < 2 * 7168; ++i) {
    const auto board = i / 64, place = i % 64;
    const auto bit = static_cast<float>(boards[board] >> (place ^ 7) & 1);
    CHECK(planes[i] == (board % 112 == 109 ? rule50[board / 112] : bit));
    CHECK(half_planes[i].bits == Half(planes[i]).bits);
  }
  for (std::size_t i = 0; i < 2 * policy_size; ++i) CHECK(half_policy[i].bits == Half(policy[i]).bits);
  CHECK_THROWS((fill_tensors<float>(columns, std::span<float>(planes).first(7168), policy, values)), std::invalid_argument);
}

// Any bytes are refused, or are frames that have tensors.
void noise_is_refused_or_has_tensors() {
  Random random;
  for (int round = 0; round < 60; ++round) {
    const auto version = static_cast<std::uint32_t>(random.between(3, 7));
    auto raw = chunk(version, 2);
    for (auto left = random.below(200); left; --left) raw[8 + random.below(raw.size() - 8)] = static_cast<std::uint8_t>(random.word());
    try {
      const auto store = read_frames(raw);
      const auto columns = view_of(store);
      columns.check();
      check_tensors(columns, static_cast<std::size_t>(round) % 3);
    } catch (const FrameError&) {
    }
  }
}

void columns_that_contradict_themselves_are_refused() {
  const std::vector<GameFrame> fields(2);
  const auto refused = [&](std::vector<std::uint32_t> ends, std::vector<std::uint16_t> moves, std::size_t probabilities) {
    const std::vector<float> shares(probabilities);
    CHECK_THROWS((FrameColumns{fields, ends, moves, shares}.check()), std::invalid_argument);
  };
  refused({1}, {0}, 1);
  refused({1, 2}, {0}, 1);
  refused({2, 1}, {0}, 1);
  refused({1, 1}, {0}, 2);
  refused({1, 1}, {1858}, 1);
  refused({0, 1859}, std::vector<std::uint16_t>(1859), 1859);
}

void numbers_have_their_halves() {
  CHECK(Half(1.0F).bits == 0x3C00 && Half(-1.0F).bits == 0xBC00 && Half(-0.0F).bits == 0x8000);
  CHECK(Half(65504.0F).bits == 0x7BFF && Half(65519.0F).bits == 0x7BFF && Half(65520.0F).bits == 0x7C00);
  CHECK(Half(5.9604645e-8F).bits == 1 && Half(2.9802322e-8F).bits == 0 && Half(6.1035156e-5F).bits == 0x0400);
  CHECK(Half(NAN).bits == 0x7E00 && Half(-INFINITY).bits == 0xFC00);
}

}  // namespace

int main() {
  versions_have_their_sizes();
  older_versions_say_what_they_can();
  entries_at_every_place_are_found();
  full_policies_make_the_columns_grow();
  what_was_not_needed_is_given_back();
  what_is_no_chunk_is_refused();
  noise_is_refused_or_has_tensors();
  columns_that_contradict_themselves_are_refused();
  numbers_have_their_halves();
}
