// core/chess/inflate.h: a packed chunk of games -> its bytes.
//
// Six bytes of seven in a chunk are -1.0, again and again, which DEFLATE says as copies from 4 bytes before: general libraries
// read each word back right after they wrote it, and wait for it. Here such a run is written without being read again, all
// copies are made in whole strides whose number hardly depends on their length, so that no branch is guessed wrong for it,
// and the next code is looked up before the last copy is made.
// Files of one member that are sound are unpacked; whatever else there is, the caller asks a library, which has the last word.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "core/chess/crc32.h"

namespace millstream {

namespace inflating {

template <typename Word>
inline Word load(const std::uint8_t* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// The bits of a file, lowest first. Behind its end come zeros, and `overrun` tells.
class Bits {
 public:
  explicit Bits(std::span<const std::uint8_t> bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  // At least 56 bits are at hand.
  void refill() {
    if (end_ - at_ >= 8) return refill_within();
    for (; count_ < 56; count_ += 8) {
      if (at_ < end_)
        word_ |= static_cast<std::uint64_t>(*at_++) << count_;
      else
        ++missing_;
    }
  }

  // Whether `refill_within` may be called twice.
  bool ample() const { return end_ - at_ >= 16; }

  // The same far from the end.
  void refill_within() {
    word_ |= load<std::uint64_t>(at_) << count_;
    at_ += (63 - count_) >> 3;
    count_ |= 56;
  }

  std::uint64_t peek() const { return word_; }
  void drop(unsigned bits) { word_ >>= bits, count_ -= bits; }
  std::uint32_t take(unsigned bits) {
    const auto found = static_cast<std::uint32_t>(word_ & ((std::uint64_t{1} << bits) - 1));
    drop(bits);
    return found;
  }

  bool overrun() const { return missing_ > count_ / 8; }

  // What lies behind the byte that the last bit was taken from.
  std::span<const std::uint8_t> rest() const { return {at_ - (count_ / 8 - missing_), end_}; }

 private:
  const std::uint8_t *at_, *end_;
  std::uint64_t word_ = 0;
  unsigned count_ = 0, missing_ = 0;
};

// What a code stands for: [0, 6) its bits and those of the number behind it, [8, 13) its own bits alone, [13, 16) its kind,
// [16, 32) a value, to which that number is added. 0 is no code.
using Entry = std::uint32_t;
inline constexpr Entry literal = 1U << 13, end_of_block = 1U << 14, longer = 1U << 15;

constexpr unsigned bits_of(Entry entry) { return entry & 63; }
constexpr std::uint32_t value_of(Entry entry) { return entry >> 16; }
constexpr std::uint32_t number_of(Entry entry, std::uint64_t bits) {
  const auto all = static_cast<std::uint32_t>(bits & ((std::uint64_t{1} << bits_of(entry)) - 1));
  return value_of(entry) + (all >> (entry >> 8 & 31));
}

inline constexpr unsigned most_bits = 15;

// Codes by their bits: those of up to `Width` bits at once, longer ones in a second look.
template <unsigned Width, std::size_t Symbols>
class Codes {
 public:
  // `meanings` are entries with the bits behind the code alone. False for lengths that no code has.
  bool build(std::span<const std::uint8_t> lengths, std::span<const Entry> meanings) {
    std::array<std::uint32_t, most_bits + 2> next{};
    for (const auto length : lengths) ++next[length + 1U];
    next[1] = 0;  // symbols that are not used
    std::uint32_t code = 0;
    for (unsigned length = 1; length <= most_bits; ++length) {
      const auto count = next[length + 1];
      next[length] = code;
      code = (code + count) << 1;
      if (code > 2U << length) return false;
    }
    used_ = std::size_t{1} << Width;
    std::fill_n(table_.begin(), used_, 0);
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol)
      if (const unsigned length = lengths[symbol]) put(reversed(next[length]++, length), length, meanings[symbol]);
    return true;
  }

  Entry find(std::uint64_t bits) const {
    const auto entry = table_[bits & ((1U << Width) - 1)];
    return entry & longer ? table_[value_of(entry) + (bits >> Width & ((1U << (most_bits - Width)) - 1))] : entry;
  }

 private:
  static constexpr std::size_t longer_room = std::size_t{1} << (most_bits - Width);

  static std::uint32_t reversed(std::uint32_t code, unsigned length) {
    std::uint32_t out = 0;
    for (unsigned bit = 0; bit < length; ++bit) out |= (code >> bit & 1U) << (length - 1 - bit);
    return out;
  }

  void put(std::uint32_t code, unsigned length, Entry meaning) {
    const Entry entry = (meaning + length) | length << 8;
    std::size_t first = 0, room = std::size_t{1} << Width, step = std::size_t{1} << length;
    if (length > Width) {
      first = second_look(table_[code & (room - 1)]), room = longer_room, step >>= Width, code >>= Width;
    }
    for (std::size_t at = code; at < room; at += step) table_[first + at] = entry;
  }

  std::size_t second_look(Entry& front) {
    if (!front) {
      front = longer | static_cast<Entry>(used_) << 16;
      std::fill_n(table_.begin() + static_cast<std::ptrdiff_t>(used_), longer_room, 0);
      used_ += longer_room;
    }
    return value_of(front);
  }

  // No more fronts of longer codes than symbols that could have one.
  std::array<Entry, (std::size_t{1} << Width) + Symbols * longer_room> table_;
  std::size_t used_ = 0;
};

inline constexpr auto length_meanings = [] {
  std::array<Entry, 288> made{};
  for (Entry symbol = 0; symbol < 256; ++symbol) made[symbol] = literal | symbol << 16;
  made[256] = end_of_block;
  Entry base = 3;
  for (Entry symbol = 257; symbol < 285; ++symbol) {
    const Entry extra = symbol < 265 ? 0 : (symbol - 261) / 4;
    made[symbol] = extra | base << 16;
    base += 1U << extra;
  }
  made[285] = 258U << 16;
  return made;  // 286 and 287 have no meaning: value 0
}();

inline constexpr auto distance_meanings = [] {
  std::array<Entry, 32> made{};
  Entry base = 1;
  for (Entry symbol = 0; symbol < 30; ++symbol) {
    const Entry extra = symbol < 4 ? 0 : symbol / 2 - 1;
    made[symbol] = extra | base << 16;
    base += 1U << extra;
  }
  return made;
}();

inline constexpr auto plain_meanings = [] {
  std::array<Entry, 19> made{};
  for (Entry symbol = 0; symbol < 19; ++symbol) made[symbol] = symbol << 16;
  return made;
}();

// Writes one chunk, and nothing beyond it.
class Output {
 public:
  explicit Output(std::span<std::uint8_t> room) : begin_(room.data()), at_(begin_), end_(begin_ + room.size()) {}

  std::size_t room() const { return static_cast<std::size_t>(end_ - at_); }
  std::size_t written() const { return static_cast<std::size_t>(at_ - begin_); }
  void put(std::uint8_t byte) { *at_++ = byte; }
  void put(std::span<const std::uint8_t> bytes) { at_ = std::copy(bytes.begin(), bytes.end(), at_); }

  // Writes the bytes from `distance` before once more; there are as many, and there is room.
  void repeat(std::size_t length, std::size_t distance) {
    for (const auto* from = at_ - distance; length > 0; --length) *at_++ = *from++;
  }

  // Whether there is room for two bytes and for any copy in whole strides.
  bool ample() const { return room() >= 2 + most_strides * stride; }

  // The same, and whatever behind it.
  void repeat_in_strides(std::size_t length, std::size_t distance) {
    auto* to = at_;
    const auto* from = to - distance;
    at_ += length;
    if (distance >= stride) {
      for (unsigned i = 0; i < 2; ++i) std::memcpy(to + i * stride, from + i * stride, stride);
      if (length <= 2 * stride) return;
      for (unsigned i = 2; i < most_strides; ++i) std::memcpy(to + i * stride, from + i * stride, stride);
    } else if (distance == 4) {
      if (to != run_end_) run_ = load<std::uint32_t>(from);
      fill(to, run_ * 0x1'0000'0001ULL);
      run_ = std::rotr(run_, static_cast<int>(length % 4 * 8));
      run_end_ = at_;
    } else if (distance == 1) {
      fill(to, *from * 0x0101'0101'0101'0101ULL);
    } else if (distance >= 8) {
      for (; to < at_; to += 8, from += 8) std::memcpy(to, from, 8);
    } else {
      while (to < at_) *to++ = *from++;
    }
  }

 private:
  static constexpr std::size_t stride = 32, most_strides = 9;  // of a copy, which has at most 258 bytes

  static void fill(std::uint8_t* to, std::uint64_t word) {
    using Words [[gnu::vector_size(stride)]] = std::uint64_t;
    const Words words{word, word, word, word};
    for (unsigned i = 0; i < most_strides; ++i) std::memcpy(to + i * stride, &words, stride);
  }

  std::uint8_t *begin_, *at_, *end_;
  const std::uint8_t* run_end_ = nullptr;  // where the last run of a word ended, and the word that continues from there:
  std::uint32_t run_ = 0;                  // to read it back would wait for all of the strides
};

// Why no more of a block was unpacked.
enum class Stop { damage, end_of_block, no_room };

class Inflater {
 public:
#if defined(__x86_64__)
  static bool can_be_wide() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"); }
#else
  static bool can_be_wide() { return false; }
#endif
  explicit Inflater(bool wide = can_be_wide()) : wide_(wide) {}

  // Unpacks all blocks into all of `out`; gives what lies behind them, or nothing if they are not sound.
  std::optional<std::span<const std::uint8_t>> run(std::span<const std::uint8_t> packed, std::span<std::uint8_t> into) {
    Bits bits(packed);
    Output out(into);
    if (blocks(bits, out) != Stop::end_of_block || out.room() != 0) return {};
    return bits.rest();
  }

  // Unpacks as much as fills `out`; whether there was as much, and sound.
  bool run_to_fill(std::span<const std::uint8_t> packed, std::span<std::uint8_t> into) {
    Bits bits(packed);
    Output out(into);
    return blocks(bits, out) != Stop::damage && out.room() == 0;
  }

 private:
  Stop blocks(Bits& bits, Output& out) {
    for (bool last = false; !last;) {
      bits.refill();
      last = bits.take(1) != 0;
      const auto kind = bits.take(2);
      const auto stop = kind == 0                                                ? stored(bits, out)
                        : (kind == 1 && fixed()) || (kind == 2 && dynamic(bits)) ? block(bits, out)
                                                                                 : Stop::damage;
      if (bits.overrun()) return Stop::damage;
      if (stop != Stop::end_of_block) return stop;
    }
    return Stop::end_of_block;
  }

  static Stop stored(Bits& bits, Output& out) {
    if (bits.overrun()) return Stop::damage;
    const auto rest = bits.rest();
    if (rest.size() < 4) return Stop::damage;
    const auto size = load<std::uint16_t>(rest.data());
    if (size != static_cast<std::uint16_t>(~load<std::uint16_t>(rest.data() + 2)) || rest.size() - 4 < size) return Stop::damage;
    const auto fits = std::min<std::size_t>(size, out.room());
    out.put(rest.subspan(4, fits));
    bits = Bits(rest.subspan(4U + size));
    return fits < size ? Stop::no_room : Stop::end_of_block;
  }

  bool fixed() {
    std::array<std::uint8_t, 288> lengths;
    for (std::size_t symbol = 0; symbol < 288; ++symbol) lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
    std::array<std::uint8_t, 32> distances;
    distances.fill(5);
    return lengths_.build(lengths, length_meanings) && distances_.build(distances, distance_meanings);
  }

  bool dynamic(Bits& bits) {
    constexpr std::array<std::uint8_t, 19> order{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    const auto lengths = bits.take(5) + 257, distances = bits.take(5) + 1, plain = bits.take(4) + 4;
    if (lengths > 286 || distances > 30) return false;
    std::array<std::uint8_t, 19> plain_lengths{};
    for (std::size_t i = 0; i < plain; ++i) {
      bits.refill();
      plain_lengths[order[i]] = static_cast<std::uint8_t>(bits.take(3));
    }
    if (!plain_.build(plain_lengths, plain_meanings)) return false;
    std::array<std::uint8_t, 286 + 30 + 138> all{};
    for (std::size_t i = 0; i < lengths + distances;) {
      bits.refill();
      const auto entry = plain_.find(bits.peek());
      if (!entry || bits.overrun()) return false;
      bits.drop(bits_of(entry));
      const auto symbol = value_of(entry);
      if (symbol < 16) {
        all[i++] = static_cast<std::uint8_t>(symbol);
        continue;
      }
      if (symbol == 16 && i == 0) return false;
      const std::uint8_t repeated = symbol == 16 ? all[i - 1] : 0;
      const auto times = symbol == 16 ? 3 + bits.take(2) : symbol == 17 ? 3 + bits.take(3) : 11 + bits.take(7);
      std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(i), times, repeated);
      i += times;
      if (i > lengths + distances) return false;
    }
    const auto codes = std::span<const std::uint8_t>(all);
    return lengths_.build(codes.first(lengths), length_meanings) &&
           distances_.build(codes.subspan(lengths, distances), distance_meanings);
  }

  Stop block(Bits& bits, Output& out) const {
    const auto stopped = wide_ ? far_from_ends_wide(bits, out) : far_from_ends(bits, out);
    return stopped ? *stopped : near_an_end(bits, out);
  }

#if defined(__x86_64__)
  [[gnu::target("avx2,bmi2")]]
#endif
  std::optional<Stop> far_from_ends_wide(Bits& bits, Output& out) const { return far_from_ends(bits, out); }

  // Codes as long as the end of the file or the chunk is too far away to matter; why it stopped before that, if so.
  [[gnu::always_inline]] inline std::optional<Stop> far_from_ends(Bits& bits_left, Output& output) const {
    if (!bits_left.ample()) return {};
    auto bits = bits_left;  // of this function alone, so that no byte that is written could be theirs
    auto out = output;
    bits.refill_within();
    auto entry = lengths_.find(bits.peek());
    const auto put_literal = [&] {
      out.put(static_cast<std::uint8_t>(value_of(entry)));
      bits.drop(bits_of(entry));
      entry = lengths_.find(bits.peek());
    };
    std::optional<Stop> stopped;
    while (bits.ample() && out.ample()) {
      if (entry & literal) {
        put_literal();
        if (entry & literal) put_literal();
        bits.refill_within();
        if (entry & literal) continue;
      }
      const std::size_t length = number_of(entry, bits.peek());
      bits.drop(bits_of(entry));
      if (entry & end_of_block) {
        stopped = Stop::end_of_block;
        break;
      }
      entry = distances_.find(bits.peek());
      const std::size_t distance = number_of(entry, bits.peek());
      bits.drop(bits_of(entry));
      if (!is_copy(length, distance, out)) return Stop::damage;
      bits.refill_within();
      entry = lengths_.find(bits.peek());
      out.repeat_in_strides(length, distance);
    }
    bits_left = bits, output = out;
    return stopped;
  }

  Stop near_an_end(Bits& bits, Output& out) const {
    while (true) {
      bits.refill();
      auto entry = lengths_.find(bits.peek());
      const std::size_t length = number_of(entry, bits.peek());
      bits.drop(bits_of(entry));
      if (entry & literal) {
        if (out.room() == 0) return Stop::no_room;
        out.put(static_cast<std::uint8_t>(value_of(entry)));
        continue;
      }
      if (entry & end_of_block) return Stop::end_of_block;
      entry = distances_.find(bits.peek());
      const std::size_t distance = number_of(entry, bits.peek());
      bits.drop(bits_of(entry));
      if (!is_copy(length, distance, out)) return Stop::damage;
      if (length > out.room()) {
        out.repeat(out.room(), distance);
        return Stop::no_room;
      }
      out.repeat(length, distance);
    }
  }

  static bool is_copy(std::size_t length, std::size_t distance, const Output& out) {
    return length >= 3 && distance != 0 && distance <= out.written();
  }

  bool wide_;
  Codes<11, 288> lengths_;
  Codes<9, 32> distances_;
  Codes<7, 19> plain_;
};

// What lies behind the header of a gzip file, if it has one.
inline std::optional<std::span<const std::uint8_t>> behind_header(std::span<const std::uint8_t> packed) {
  constexpr std::uint8_t checked = 2, extra = 4, name = 8, comment = 16;
  if (packed.size() < 18 || packed[0] != 0x1F || packed[1] != 0x8B || packed[2] != 8) return {};
  const auto flags = packed[3];
  if (flags & (checked | 0xE0)) return {};  // hardly anybody writes a checksum of the header
  auto rest = packed.subspan(10);
  if (flags & extra) {
    const std::size_t size = 2U + load<std::uint16_t>(rest.data());
    if (rest.size() < size) return {};
    rest = rest.subspan(size);
  }
  for (const auto text : {name, comment}) {
    if (!(flags & text)) continue;
    const auto end = std::find(rest.begin(), rest.end(), std::uint8_t{0});
    if (end == rest.end()) return {};
    rest = rest.subspan(static_cast<std::size_t>(end - rest.begin()) + 1);
  }
  return rest;
}

}  // namespace inflating

// Unpacks a gzip file of one member, with nothing but zeros behind it, that has exactly as many bytes as `out`; false for any
// other, whose bytes are then anything.
inline bool gunzip(std::span<const std::uint8_t> packed, std::span<std::uint8_t> out) {
  const auto body = inflating::behind_header(packed);
  if (!body) return false;
  const auto rest = inflating::Inflater().run(*body, out);
  if (!rest || rest->size() < 8) return false;
  const auto sum = inflating::load<std::uint32_t>(rest->data()), size = inflating::load<std::uint32_t>(rest->data() + 4);
  const auto padding = rest->subspan(8);
  return size == out.size() && std::all_of(padding.begin(), padding.end(), [](auto byte) { return byte == 0; }) &&
         sum == crc32(out);
}

// Unpacks as much of a gzip file as fills `out`. Nothing but `sum`, the checksum of the packed bytes when all of them were found
// to be sound, can tell whether they still are: the file's own is one of all that it unpacks to.
inline bool gunzip_front(std::span<const std::uint8_t> packed, std::uint32_t sum, std::span<std::uint8_t> out) {
  const auto body = inflating::behind_header(packed);
  return body && crc32(packed) == sum && inflating::Inflater().run_to_fill(*body, out);
}

}  // namespace millstream
