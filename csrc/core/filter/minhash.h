// core/filter/minhash.h: keys by which duplicates meet: equal texts share one, similar texts are likely to share one of several.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/text/fold.h"

namespace millstream {

// Two independent 64-bit hashes. Among 10^10 texts the chance that any two different ones share all 128 bits is
// 10^20 / 2^129, below 10^-18; with 64 bits about three pairs would be expected.
inline void exact_key(std::string_view text, std::uint64_t* out) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  out[0] = xxh64(bytes, 0);
  out[1] = xxh64(bytes, xxh::prime3);
}

// MinHash with bands: two texts whose sets of n-word shingles have Jaccard similarity s share at least one band's key with
// probability 1 - (1 - s^rows)^bands.
class MinHash {
 public:
  MinHash(std::size_t n, std::size_t bands, std::size_t rows, std::uint64_t seed) : n_(n), bands_(bands), rows_(rows) {
    if (n == 0 || bands == 0 || rows == 0) throw std::invalid_argument("minhash: words, bands and rows start at 1");
    for (std::size_t i = 0; i < bands * rows; ++i) {
      const std::uint64_t word = xxh::avalanche((seed + 1) * xxh::prime1 + i * xxh::prime2);
      factors_.push_back(static_cast<std::uint32_t>(word) | 1u);
      offsets_.push_back(static_cast<std::uint32_t>(word >> 32));
    }
    minima_.resize(bands * rows);
  }

  std::size_t bands() const { return bands_; }

  // One key per band.
  void keys(std::string_view text, std::uint64_t* out) {
    sign(text);
    for (std::size_t band = 0; band < bands_; ++band)
      out[band] = xxh64(std::as_bytes(std::span(minima_).subspan(band * rows_, rows_)), band);
  }

  // The smallest value of each hash function over the shingles of `text`.
  const std::vector<std::uint32_t>& sign(std::string_view text) {
    read_shingles(text);
    std::fill(minima_.begin(), minima_.end(), std::numeric_limits<std::uint32_t>::max());
    least_hashes(shingles_.data(), shingles_.size(), factors_.data(), offsets_.data(), minima_.data(), minima_.size());
    return minima_;
  }

 private:
  // A text of fewer than n words is one shingle; one without words is compared as it is.
  void read_shingles(std::string_view text) {
    words_.clear();
    shingles_.clear();
    hash_words(text, unicode_, words_);
    const std::size_t n = std::min(n_, words_.size());
    if (n == 0) {
      shingles_.push_back(static_cast<std::uint32_t>(xxh64(std::as_bytes(std::span(text.data(), text.size())))));
      return;
    }
    const Shingles shingles(words_);
    const std::uint64_t power = Shingles::power(n);
    for (std::size_t i = 0; i + n <= words_.size(); ++i)
      shingles_.push_back(static_cast<std::uint32_t>(shingles.at(i, n, power)));
  }

  Unicode unicode_;
  std::size_t n_, bands_, rows_;
  std::vector<std::uint32_t> factors_, offsets_, minima_, shingles_;
  std::vector<std::uint64_t> words_;
};

}  // namespace millstream
