// core/store/narrow.h: the ids that a tokenizer gave -> the ids that a store keeps, each document with its end token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace millstream {

// Copies each document of `ids` into `out` as T, followed by `eos` if there is one. `ends` must rise to ids.size().
template <typename T>
void narrow_documents(std::span<const std::uint32_t> ids, std::span<const std::int64_t> ends,
                      std::optional<std::uint32_t> eos, std::span<T> out) {
  constexpr auto most = static_cast<std::uint32_t>(std::numeric_limits<T>::max());
  if (out.size() != ids.size() + (eos ? ends.size() : 0))
    throw std::invalid_argument("narrow_documents: `out` has the wrong size");
  if (eos && *eos > most) throw std::invalid_argument("narrow_documents: the end token does not fit");
  auto* to = out.data();
  std::size_t begin = 0;
  std::uint32_t largest = 0;
  for (const auto end : ends) {
    const auto stop = static_cast<std::size_t>(end);
    if (end < 0 || stop < begin || stop > ids.size())
      throw std::invalid_argument("narrow_documents: document ends must rise");
    for (; begin < stop; ++begin) {
      largest = largest > ids[begin] ? largest : ids[begin];
      *to++ = static_cast<T>(ids[begin]);
    }
    if (eos) *to++ = static_cast<T>(*eos);
  }
  if (begin != ids.size()) throw std::invalid_argument("narrow_documents: tokens behind the last document");
  if (largest > most) throw std::out_of_range("id " + std::to_string(largest) + " does not fit");
}

}  // namespace millstream
