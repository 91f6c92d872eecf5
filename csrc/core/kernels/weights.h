// core/kernels/weights.h: tokens that carry their weight in the loss. One word each: the id in its low 24 bits, and above them a code.
//
// Code 0 weighs nothing. Codes 1 to 100 are hundredths up to 1, then come tenths up to 10, then whole numbers up to 75: what
// people write down is exact, and a sum of weights in hundredths is a whole number.
#pragma once

#include <algorithm>
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

// The code of the nearest weight there is, of two equally near ones the greater; none but 0 becomes 0.
inline std::uint8_t code_of(double weight) {
  static constexpr auto table = [] {
    std::array<double, 256> exact{};
    for (std::uint32_t code = 0; code < 256; ++code) exact[code] = hundredths(code) / 100.0;
    return exact;
  }();
  if (weight == 0) return 0;
  if (weight == 1) return Weighted::whole;
  const auto above = std::clamp<std::ptrdiff_t>(std::lower_bound(table.begin(), table.end(), weight) - table.begin(), 1, 255);
  const bool below = weight - table[above - 1] < table[above] - weight;
  return static_cast<std::uint8_t>(std::max<std::ptrdiff_t>(1, below ? above - 1 : above));
}

// Writes the codes of weights; gives the place of the first that is none (negative, too great, no number), or the end.
inline std::size_t codes_of(std::span<const double> weights, std::span<std::uint8_t> codes) {
  if (codes.size() != weights.size()) throw std::invalid_argument("one place for each weight");
  constexpr double most = hundredths(255) / 100.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0 && weights[i] <= most)) return i;
    codes[i] = code_of(weights[i]);
  }
  return weights.size();
}

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
