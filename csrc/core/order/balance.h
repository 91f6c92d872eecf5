// core/order/balance.h: costs -> parts that cost about the same, by Karmarkar and Karp's largest differencing, and then by exchanges.
//
// A pure function of the costs. Part 0 costs the most.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace millstream {

// Starts with every item in a partition of its own, and always joins the two partitions whose parts differ most, the heaviest
// part of one with the lightest of the other. Of equal sizes: a partition at the start is one item for each part.
class Differencing {
 public:
  using Cost = std::int64_t;
  using Item = std::uint32_t;

  Differencing(std::span<const Cost> costs, std::size_t parts, bool equal_sizes) : parts_(parts), next_(costs.size(), none) {
    std::vector<Item> items(costs.size());
    std::iota(items.begin(), items.end(), Item{0});
    std::ranges::stable_sort(items, [&](Item a, Item b) { return costs[a] > costs[b]; });
    const auto step = equal_sizes ? parts : 1;
    for (std::size_t start = 0; start < items.size(); start += step) {
      Partition each;
      for (auto place = start; place < std::min(start + step, items.size()); ++place)
        each.push_back({costs[items[place]], items[place], items[place]});
      partitions_.push_back(std::move(each));
      line_up(partitions_.size() - 1);
    }
    while (waiting_.size() > 1) {
      const auto one = pop(), other = pop();
      join(partitions_[one], partitions_[other]);
      line_up(one);
    }
  }

  // Items of each part, the heaviest part first.
  std::vector<std::vector<Item>> parts() const {
    std::vector<std::vector<Item>> found(parts_);
    if (partitions_.empty()) return found;
    const auto& whole = partitions_[foremost()];
    for (std::size_t part = 0; part < whole.size(); ++part)
      for (auto item = whole[part].first; item != none; item = next_[item]) found[part].push_back(item);
    return found;
  }

 private:
  static constexpr auto none = std::numeric_limits<Item>::max();

  // Items that hang together, from the first to the last.
  struct Part {
    Cost cost;
    Item first, last;

    bool operator<(const Part& other) const {  // the heavier comes first
      return cost != other.cost ? cost > other.cost : first < other.first;
    }
  };
  using Partition = std::vector<Part>;  // only parts that have items; the others are as many as are missing

  // How much its parts differ, what the heaviest costs, and which it is: earlier ones first where all else is equal.
  using Rank = std::tuple<Cost, Cost, std::size_t>;

  void line_up(std::size_t number) {
    const auto& each = partitions_[number];
    const auto lightest = each.size() < parts_ ? 0 : each.back().cost;
    waiting_.emplace(each.front().cost - lightest, each.front().cost, ~number);
  }

  std::size_t foremost() const { return ~std::get<2>(waiting_.top()); }

  std::size_t pop() {
    const auto number = foremost();
    waiting_.pop();
    return number;
  }

  void join(Partition& into, Partition& from) {
    if (into.size() < from.size()) into.swap(from);
    const auto alone = std::min(into.size(), parts_ - from.size());  // parts of `into` that meet an empty one
    const auto met = into.size() - alone;
    for (std::size_t place = alone; place < into.size(); ++place) {
      auto& part = into[place];
      const auto& other = from[parts_ - 1 - place];
      next_[part.last] = other.first;
      part.last = other.last;
      part.cost += other.cost;
    }
    const auto middle = into.begin() + static_cast<std::ptrdiff_t>(alone);
    std::sort(middle, into.end());
    std::inplace_merge(into.begin(), middle, into.end());
    const auto sorted = static_cast<std::ptrdiff_t>(into.size());
    into.insert(into.end(), from.begin(), from.end() - static_cast<std::ptrdiff_t>(met));
    std::inplace_merge(into.begin(), into.begin() + sorted, into.end());
    Partition().swap(from);
  }

  const std::size_t parts_;
  std::vector<Item> next_;
  std::vector<Partition> partitions_;
  std::priority_queue<Rank> waiting_;
};

// Moves an item out of the heaviest part, or exchanges it for a lighter one, as long as that makes the heavier of two parts
// lighter. Of equal sizes: parts stay as large as they are, but for those that have an item more than others.
class Exchanges {
 public:
  using Cost = Differencing::Cost;
  using Item = Differencing::Item;

  Exchanges(std::span<const Cost> costs, std::vector<std::vector<Item>>& parts, bool equal_sizes)
      : costs_(costs), parts_(parts), equal_sizes_(equal_sizes), totals_(parts.size()) {
    for (std::size_t part = 0; part < parts.size(); ++part) {
      std::ranges::sort(parts[part], {}, [&](Item item) { return key(item); });
      for (const auto item : parts[part]) totals_[part] += costs[item];
      by_cost_.emplace(totals_[part], part);
    }
    auto rounds = enough_rounds * parts.size() + 64;
    while (rounds-- > 0 && improve()) {
    }
  }

  const std::vector<Cost>& totals() const { return totals_; }

 private:
  static constexpr std::size_t enough_rounds = 4, enough_partners = 64;
  static constexpr auto nothing = std::numeric_limits<std::size_t>::max();

  // What the heaviest part gives to another one (a place among its items), and takes from there.
  struct Change {
    Cost gain = 0;
    std::size_t part = nothing, given = nothing, taken = nothing;
  };

  std::pair<Cost, Item> key(Item item) const { return {costs_[item], item}; }

  bool improve() {
    const auto [most, heaviest] = *by_cost_.rbegin();
    Change best;
    auto partner = by_cost_.begin();
    for (std::size_t count = 0; count < enough_partners && most - partner->first > 1; ++count, ++partner)
      consider(heaviest, partner->second, best);
    if (best.gain == 0) return false;
    apply(heaviest, best);
    return true;
  }

  // A difference of x between what is given and taken makes the heavier of both lighter by min(x, gap - x).
  void consider(std::size_t heaviest, std::size_t part, Change& best) const {
    const auto& heavy = parts_[heaviest];
    const auto& light = parts_[part];
    const auto gap = totals_[heaviest] - totals_[part];
    const auto offer = [&](std::size_t given, std::size_t taken) {
      const auto less = costs_[heavy[given]] - (taken == nothing ? 0 : costs_[light[taken]]);
      if (const auto gain = std::min(less, gap - less); gain > best.gain) best = {gain, part, given, taken};
    };
    const bool may_move = !equal_sizes_ || heavy.size() > light.size();
    std::size_t taken = 0;
    for (std::size_t given = 0; given < heavy.size(); ++given) {
      if (may_move) offer(given, nothing);
      const auto wanted = costs_[heavy[given]] - gap / 2;
      while (taken < light.size() && costs_[light[taken]] < wanted) ++taken;
      if (taken < light.size()) offer(given, taken);
      if (taken > 0) offer(given, taken - 1);
    }
  }

  void apply(std::size_t heaviest, const Change& change) {
    auto& heavy = parts_[heaviest];
    auto& light = parts_[change.part];
    const auto given = heavy[change.given];
    const auto taken = change.taken == nothing ? nothing : light[change.taken];
    pass(given, heavy, light);
    if (taken != nothing) pass(static_cast<Item>(taken), light, heavy);
    const auto less = costs_[given] - (taken == nothing ? 0 : costs_[taken]);
    change_total(heaviest, -less);
    change_total(change.part, less);
  }

  void pass(Item item, std::vector<Item>& from, std::vector<Item>& to) {
    const auto by_key = [&](Item each) { return key(each); };
    from.erase(std::ranges::lower_bound(from, key(item), {}, by_key));
    to.insert(std::ranges::lower_bound(to, key(item), {}, by_key), item);
  }

  void change_total(std::size_t part, Cost more) {
    by_cost_.erase({totals_[part], part});
    totals_[part] += more;
    by_cost_.emplace(totals_[part], part);
  }

  std::span<const Cost> costs_;
  std::vector<std::vector<Item>>& parts_;
  const bool equal_sizes_;
  std::vector<Cost> totals_;
  std::set<std::pair<Cost, std::size_t>> by_cost_;
};

// Writes the part of each item. Of equal sizes: no part has two items more than another. Without `refine`, as Karmarkar and
// Karp found them.
inline void partition(std::span<const std::int64_t> costs, std::size_t parts, bool equal_sizes, bool refine,
                      std::span<std::int64_t> part_of) {
  if (parts == 0) throw std::invalid_argument("there is no part to put anything into");
  if (part_of.size() != costs.size()) throw std::invalid_argument("one place for the part of each item");
  if (costs.size() >= std::numeric_limits<Differencing::Item>::max()) throw std::invalid_argument("too many items");
  auto room = std::numeric_limits<std::int64_t>::max() / 2;
  for (const auto cost : costs) {
    if (cost < 0) throw std::invalid_argument("a cost is negative");
    if (cost > room) throw std::overflow_error("the costs add up to more than 2^62");
    room -= cost;
  }
  auto found = Differencing(costs, parts, equal_sizes).parts();
  if (refine) {
    const Exchanges exchanges(costs, found, equal_sizes);
    std::vector<std::size_t> numbers(parts);
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    std::ranges::stable_sort(numbers, std::greater{}, [&](std::size_t part) { return exchanges.totals()[part]; });
    std::vector<std::vector<Differencing::Item>> heaviest_first;
    for (const auto number : numbers) heaviest_first.push_back(std::move(found[number]));
    found = std::move(heaviest_first);
  }
  for (std::size_t part = 0; part < found.size(); ++part)
    for (const auto item : found[part]) part_of[item] = static_cast<std::int64_t>(part);
}

}  // namespace millstream
