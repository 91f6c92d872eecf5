// core/order/mix.h: which source stands at which place of a block, exactly in proportion to the quotas.
//
// A block has as many places as the quotas add up to. A keyed bijection shuffles them; the table of one block is the
// only thing ever built, so a mixture of any length costs the memory of one block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/order/permute.h"

namespace millstream {

class Mixture {
 public:
  struct Place {
    std::uint32_t source;
    std::uint32_t rank;  // earlier places of this block that name the same source
  };

  Mixture(std::vector<std::uint64_t> quotas, std::uint64_t key) : quotas_(std::move(quotas)), key_(key) {
    constexpr std::uint64_t most_places = 1ULL << 24;
    for (const auto quota : quotas_) {
      if (quota == 0) throw std::invalid_argument("a source of a mix needs at least one place");
      places_ += std::min(quota, most_places + 1);  // so that hostile quotas cannot wrap around
      if (places_ > most_places) break;
    }
    if (places_ == 0 || places_ > most_places) throw std::invalid_argument("a mix block has 1 to 2^24 places");
  }

  std::uint64_t places() const { return places_; }
  std::uint64_t quota(std::size_t source) const { return quotas_[source]; }
  std::size_t sources() const { return quotas_.size(); }

  // The table of one block.
  std::vector<Place> block(std::uint64_t number) const {
    std::vector<std::uint32_t> owner;
    owner.reserve(places_);
    for (std::size_t source = 0; source < quotas_.size(); ++source)
      owner.insert(owner.end(), quotas_[source], static_cast<std::uint32_t>(source));
    std::vector<std::uint32_t> seen(quotas_.size(), 0);
    std::vector<Place> table(places_);
    const Permutation order(places_, derive(key_, number));
    for (std::uint64_t place = 0; place < places_; ++place) {
      const auto source = owner[order.at(place)];
      table[place] = {source, seen[source]++};
    }
    return table;
  }

 private:
  std::vector<std::uint64_t> quotas_;
  std::uint64_t key_;
  std::uint64_t places_ = 0;
};

}  // namespace millstream
