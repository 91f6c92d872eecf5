// core/weights.h: tokens that carry their weight in the loss. One word each: the id in its low 24 bits, and above them a code.
//
// Code 0 weighs nothing. Codes 1 to 100 are hundredths up to 1, then come tenths up to 10, then whole numbers up to 75: what
// people write down is exact, and a sum of weights in hundredths is a whole number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace millstream {

struct Weighted {
  std::uint32_t word;

  static constexpr int id_bits = 24;
  static constexpr std::uint32_t id_mask = (std::uint32_t{1} << id_bits) - 1;
  static constexpr std::uint32_t whole = 100;  // the code of weight 1

  std::uint32_t id() const { return word & id_mask; }
  std::uint32_t code() const { return word >> id_bits; }
};
static_assert(sizeof(Weighted) == sizeof(std::uint32_t));

constexpr std::uint32_t hundredths(std::uint32_t code) {
  if (code <= 100) return code;
  return code <= 190 ? 100 + (code - 100) * 10 : 1000 + (code - 190) * 100;
}

inline constexpr auto weight_table = [] {
  std::array<float, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) table[code] = static_cast<float>(hundredths(code) / 100.0);
  return table;
}();

// What the targets of a document weigh together. Its first token is no target: nothing predicts it. In a document index it is
// one word, the count below and the sum above.
struct DocumentWeight {
  std::uint64_t targets = 0;     // that weigh anything
  std::uint64_t hundredths = 0;  // that they weigh

  static constexpr std::uint64_t most = (std::uint64_t{1} << 32) - 1;
  static DocumentWeight of(std::uint64_t word) { return {word & most, word >> 32}; }

  void add(const Weighted& token) {
    targets += token.code() != 0;
    hundredths += millstream::hundredths(token.code());
  }
  std::uint64_t word() const {
    if (hundredths > most) throw std::length_error("a document weighs more than 42,949,672");
    return hundredths << 32 | targets;
  }
};

// Weighs documents that lie end to end: document i is tokens[ends[i - 1] .. ends[i]).
inline void weigh_documents(std::span<const std::uint32_t> tokens, std::span<const std::int64_t> ends,
                            std::span<std::uint64_t> words) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const auto end = static_cast<std::size_t>(ends[i]);
    if (end < begin || end > tokens.size()) throw std::invalid_argument("document ends fall, or lie beyond the last token");
    DocumentWeight weight;
    for (auto place = begin + 1; place < end; ++place) weight.add({tokens[place]});
    words[i] = weight.word();
    begin = end;
  }
}

}  // namespace millstream
