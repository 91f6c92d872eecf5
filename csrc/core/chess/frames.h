// core/chess/frames.h: frames of self-play games as files hold them -> the same frames in columns.
//
// Versions 3 to 7 are read, all as version 7 without its policy (`GameFrame`); `version` stays that of the file. What an older
// version does not say:
//   before 7: the averages of the short term are 0 (6 has one of them), the next moves `unknown_move`.
//   before 6: the result is one byte, -1, 0 or 1. The network's own values are NaN; moves, visits and the rest are 0.
//   before 5: the input format is 1; `plies_left` is the number of frames from this one to the last, both counted. The byte
//             of `invariance_info` held a count that nothing uses, and is 0, since its bits mean something else now.
// A policy is 1858 floats of which some 30 are not -1: only those are kept, whatever they are, so nothing is lost.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace millstream {

inline constexpr std::size_t policy_size = 1858;
inline constexpr std::uint16_t unknown_move = 65535;

// The same bytes as `FRAME` of millstream.games; they may lie at any address.
struct [[gnu::packed]] GameFrame {
  std::uint32_t version, input_format;
  std::uint64_t planes[104];
  std::uint8_t castling_us_ooo, castling_us_oo, castling_them_ooo, castling_them_oo;
  std::uint8_t side_to_move_or_enpassant, rule50_count, invariance_info, dummy;
  float root_q, best_q, root_d, best_d;         // since version 4
  float root_m, best_m, plies_left;             // since version 5
  float result_q, result_d, played_q, played_d, played_m, orig_q, orig_d, orig_m;  // since version 6
  std::uint32_t visits;
  std::uint16_t played_idx, best_idx;
  float policy_kld, q_st;
  float d_st;  // since version 7
  std::uint16_t opp_played_idx, next_played_idx;
  float reserved[8];
  std::uint32_t padding;
};
static_assert(sizeof(GameFrame) == 968);

// A chunk that cannot be used. `reason` is one of a few, to be counted; `what` says more.
class FrameError : public std::runtime_error {
 public:
  FrameError(const char* reason, const std::string& found) : std::runtime_error(reason + (": " + found)) {}
};

// Frames in columns: where the entries of each one's policy end, and those entries.
struct FrameColumns {
  std::span<const GameFrame> fields;
  std::span<const std::uint32_t> ends;
  std::span<const std::uint16_t> moves;
  std::span<const float> probabilities;

  std::size_t size() const { return fields.size(); }
  std::size_t begin_of(std::size_t row) const { return row ? ends[row - 1] : 0; }

  // Called once for columns from outside, which are trusted from then on.
  void check() const {
    if (ends.size() != fields.size()) throw std::invalid_argument("frames: one end for each frame");
    if (moves.size() != probabilities.size()) throw std::invalid_argument("frames: one probability for each move");
    if (!std::is_sorted(ends.begin(), ends.end()) || (ends.empty() ? 0 : ends.back()) != moves.size())
      throw std::invalid_argument("frames: ends must rise to the number of moves");
    for (std::size_t row = 0; row < size(); ++row)
      if (ends[row] - begin_of(row) > policy_size) throw std::invalid_argument("frames: more moves than a policy has");
    if (std::any_of(moves.begin(), moves.end(), [](auto move) { return move >= policy_size; }))
      throw std::invalid_argument("frames: there is no such move in a policy");
  }
};

// The same, owned. Space is not cleared before it is written.
class FrameStore {
 public:
  explicit FrameStore(std::size_t frames)
      : fields(std::make_unique_for_overwrite<GameFrame[]>(frames)), size_(frames), room_(frames * likely_moves + policy_size) {
    ends.reserve(frames);
    moves = std::make_unique_for_overwrite<std::uint16_t[]>(room_);
    probabilities = std::make_unique_for_overwrite<float[]>(room_);
  }

  // Makes room for any one policy behind the `used` entries there are.
  void make_room(std::size_t used) {
    if (used + policy_size > room_) resize(used, 2 * (used + policy_size));
  }

  // Gives back what was not needed, if that is most of it: blocks of a few frames wait for others by the thousand.
  void fit() {
    const auto used = entries();
    if (used < room_ / 2) resize(used, used);
  }

  std::size_t size() const { return size_; }
  std::size_t entries() const { return ends.empty() ? 0 : ends.back(); }

  std::unique_ptr<GameFrame[]> fields;
  std::vector<std::uint32_t> ends;
  std::unique_ptr<std::uint16_t[]> moves;
  std::unique_ptr<float[]> probabilities;

 private:
  void resize(std::size_t used, std::size_t room) {
    auto other_moves = std::make_unique_for_overwrite<std::uint16_t[]>(room);
    auto other_probabilities = std::make_unique_for_overwrite<float[]>(room);
    std::copy_n(moves.get(), used, other_moves.get());
    std::copy_n(probabilities.get(), used, other_probabilities.get());
    moves = std::move(other_moves), probabilities = std::move(other_probabilities), room_ = room;
  }

  static constexpr std::size_t likely_moves = 48;
  std::size_t size_, room_;
};

// What the number of an input format says.
namespace input_format {

inline bool is_known(std::uint32_t format) { return (format >= 1 && format <= 5) || format == 132 || format == 133; }
inline bool has_rook_files(std::uint32_t format) { return format >= 2; }
inline bool is_canonical(std::uint32_t format) { return format >= 3; }
inline bool has_hectoplies(std::uint32_t format) { return format >= 4; }
inline bool is_armageddon(std::uint32_t format) { return format >= 132; }
inline bool shows_repeats_only(std::uint32_t format) { return format == 5 || format == 133; }

}  // namespace input_format

namespace frames {

struct Layout {
  std::uint32_t version;
  std::size_t head;  // bytes before the policy
  std::size_t tail;  // bytes behind it

  std::size_t policy_end() const { return head + policy_size * sizeof(float); }
  std::size_t bytes() const { return policy_end() + tail; }
};

inline constexpr Layout layouts[] = {{3, 4, 840}, {4, 4, 856}, {5, 8, 868}, {6, 8, 916}, {7, 8, 956}};

inline const Layout& layout_of(std::span<const std::uint8_t> raw) {
  if (raw.empty()) throw FrameError("empty", "there is no frame");
  std::uint32_t version = 0;
  if (raw.size() < sizeof version) throw FrameError("truncated", std::to_string(raw.size()) + " bytes are no frame");
  std::memcpy(&version, raw.data(), sizeof version);
  for (const auto& layout : layouts)
    if (layout.version == version) return layout;
  const bool extended = version == 70 || version == 170;
  throw FrameError("unknown version", std::to_string(version) + (extended ? ", version 7 as a fork extends it" : ""));
}

// Copies the entries of a policy that are not -1; gives how many. Both outputs have room for a whole policy.
inline std::size_t compact_policy(const std::uint8_t* from, std::uint16_t* moves, float* probabilities) {
  constexpr auto illegal = std::bit_cast<std::uint32_t>(-1.0F);
  std::size_t kept = 0;
  const auto keep = [&](std::size_t entry) {
    moves[kept] = static_cast<std::uint16_t>(entry);
    std::memcpy(probabilities + kept++, from + entry * sizeof(float), sizeof(float));
  };
  std::size_t entry = 0;
#if defined(__SSE2__)
  const __m128i filler = _mm_set1_epi32(static_cast<int>(illegal));
  const auto same = [&](std::size_t at) {
    return _mm_cmpeq_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at * sizeof(float))), filler);
  };
  for (; entry + 16 <= policy_size; entry += 16) {
    const __m128i low = _mm_packs_epi32(same(entry), same(entry + 4)), high = _mm_packs_epi32(same(entry + 8), same(entry + 12));
    auto legal = ~static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(low, high))) & 0xFFFFU;
    for (; legal; legal &= legal - 1) keep(entry + static_cast<std::size_t>(std::countr_zero(legal)));
  }
#endif
  for (; entry < policy_size; ++entry)
    if (std::memcmp(from + entry * sizeof(float), &illegal, sizeof illegal) != 0) keep(entry);
  return kept;
}


// Fills in what versions before 7 do not say; `left`: frames from this one to the last.
inline void upgrade(GameFrame& frame, std::size_t left) {
  if (frame.version < 7) frame.opp_played_idx = frame.next_played_idx = unknown_move;
  if (frame.version < 6) {
    const auto result = static_cast<std::int8_t>(frame.dummy);
    if (result < -1 || result > 1) throw FrameError("bad result", std::to_string(result) + " is neither -1, 0 nor 1");
    frame.result_q = result;
    frame.result_d = result == 0 ? 1.0F : 0.0F;
    frame.dummy = 0;
    frame.orig_q = frame.orig_d = frame.orig_m = std::numeric_limits<float>::quiet_NaN();
  }
  if (frame.version < 5) {
    frame.input_format = 1;
    frame.invariance_info = 0;
    frame.plies_left = static_cast<float>(left);
  }
}

inline GameFrame read_fields(const std::uint8_t* from, const Layout& layout, std::size_t left) {
  GameFrame frame{};
  std::memcpy(&frame, from, layout.head);
  std::memcpy(frame.planes, from + layout.policy_end(), layout.tail);
  if (frame.version != layout.version)
    throw FrameError("mixed versions", std::to_string(frame.version) + " in a chunk of version " + std::to_string(layout.version));
  upgrade(frame, left);
  if (!input_format::is_known(frame.input_format)) throw FrameError("unknown input format", std::to_string(frame.input_format));
  return frame;
}

}  // namespace frames

// The frames of a chunk, or those at `plies` in their order. Anything may stand in `raw`, behind which there are so many more.
inline FrameStore read_frames(std::span<const std::uint8_t> raw, std::optional<std::span<const std::uint32_t>> plies = {},
                              std::size_t behind = 0) {
  const auto& layout = frames::layout_of(raw);
  const auto count = raw.size() / layout.bytes();
  if (raw.size() % layout.bytes() != 0)
    throw FrameError("truncated", std::to_string(raw.size()) + " bytes are no whole number of frames of " +
                                      std::to_string(layout.bytes()));
  const auto chosen = plies ? plies->size() : count;
  if (chosen > std::numeric_limits<std::uint32_t>::max() / policy_size) throw FrameError("too long", "too many frames");
  FrameStore store(chosen);
  std::size_t used = 0;
  for (std::size_t i = 0; i < chosen; ++i) {
    const std::size_t ply = plies ? (*plies)[i] : i;
    if (ply >= count)
      throw FrameError("truncated", "frame " + std::to_string(ply) + " is not among its " + std::to_string(count));
    const auto* from = raw.data() + ply * layout.bytes();
    store.fields[i] = frames::read_fields(from, layout, count - ply + behind);
    store.make_room(used);
    used += frames::compact_policy(from + layout.head, store.moves.get() + used, store.probabilities.get() + used);
    store.ends.push_back(static_cast<std::uint32_t>(used));
  }
  return store;
}

}  // namespace millstream
