// bind/rl.cpp: sums and scans over the tokens of rollouts for millstream.advantages.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>

#include "bind/module.h"
#include "core/rl/returns.h"

using namespace nb::literals;
using namespace millstream;

namespace {

using Ints = Array<const std::int64_t>;
using Bools = Array<const bool>;
using Doubles = Array<const double>;

template <typename T>
std::span<T> view_if_any(const std::optional<Array<T>>& array) {
  return array ? view(*array) : std::span<T>{};
}

// Every function for columns of one precision.
template <typename Real>
void register_precision(nb::module_& m) {
  using Reals = Array<const Real>;
  using OutReals = Array<Real>;

  m.def("masked_sums",
        [](const Reals& values, const Bools& mask, const Ints& ends, const Array<double>& out) {
          nb::gil_scoped_release unlocked;
          masked_sums<Real>(view(values), view(mask), view(ends), view(out));
        },
        "values"_a, "mask"_a, "ends"_a, "out"_a, "Write the sum of each rollout's masked values into `out`.");

  m.def("spread_rows",
        [](const Doubles& rows, const Bools& mask, const Ints& ends, const OutReals& out) {
          nb::gil_scoped_release unlocked;
          spread_rows<Real>(view(rows), view(mask), view(ends), view(out));
        },
        "rows"_a, "mask"_a, "ends"_a, "out"_a, "Give every masked token the value of its rollout, and the others 0.");

  m.def("masked_moments",
        [](const Reals& values, const Bools& mask) {
          nb::gil_scoped_release unlocked;
          const auto found = masked_moments<Real>(view(values), view(mask));
          return std::tuple(found.count, found.mean, found.squares);
        },
        "values"_a, "mask"_a, "How many values are masked, their mean, and the sum of their squared distances from it.");

  m.def("rescale",
        [](const Reals& values, const Bools& mask, double shift, double scale, double lift, const OutReals& out) {
          nb::gil_scoped_release unlocked;
          rescale<Real>(view(values), view(mask), shift, scale, lift, view(out));
        },
        "values"_a, "mask"_a, "shift"_a, "scale"_a, "lift"_a, "out"_a,
        "Write (value - shift) * scale + lift where the mask is set and 0 elsewhere; `out` may be `values`.");

  m.def("scan_returns",
        [](const Ints& ends, const Bools& mask, const Doubles& rewards, const std::optional<Reals>& token_rewards,
           const std::optional<Reals>& values, const std::optional<Bools>& done, const std::optional<Doubles>& bootstrap,
           double gamma, double lam, const OutReals& advantages, const std::optional<OutReals>& returns) {
          nb::gil_scoped_release unlocked;
          const Trajectories<Real> from{view(ends), view(mask), view(rewards), view_if_any(token_rewards), view_if_any(values),
                                        view_if_any(done), view_if_any(bootstrap)};
          return scan_returns<Real>(from, gamma, lam, view(advantages), view_if_any(returns));
        },
        "ends"_a, "mask"_a, "rewards"_a, "token_rewards"_a.none(), "values"_a.none(), "done"_a.none(),
        "bootstrap"_a.none(), "gamma"_a, "lam"_a, "advantages"_a, "returns"_a.none(),
        "Scan each rollout from its end; give the first one with something that is not a finite number, or -1.");
}

}  // namespace

void register_rl(nb::module_& m) {
  m.def("masked_counts",
        [](const Bools& mask, const Ints& ends, const Array<std::int64_t>& out) {
          nb::gil_scoped_release unlocked;
          masked_counts(view(mask), view(ends), view(out));
        },
        "mask"_a, "ends"_a, "out"_a, "Write the number of each rollout's masked tokens into `out`.");
  register_precision<float>(m);
  register_precision<double>(m);
}
