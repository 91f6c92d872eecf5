// core/weights.h: tokens that carry their weight in the loss. One word each: the id in its low 24 bits, and above them a code.
//
// Code 0 weighs nothing. Codes 1 to 100 are hundredths up to 1, then come tenths up to 10, then whole numbers up to 75: what
// people write down is exact, and a sum of weights in hundredths is a whole number.
#pragma once

#include <array>
#include <cstdint>

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

}  // namespace millstream
