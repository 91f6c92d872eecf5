// core/order/clock.h: step -> rows, within one phase of a run.
//
// A phase starts somewhere in an epoch, with `left` samples to go until its end; later epochs have `size` samples each. A
// step takes the next `global_rows` samples and never straddles an epoch's end, so the last step of an epoch may be
// short (or is left out with drop_last). Each rank takes its neighbouring cut of the step's rows. A phase may change the size
// of its steps: then a clock begins at a position of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "core/order/permute.h"

namespace millstream {

struct Step {
  std::uint64_t epoch;     // counted from the clock's first epoch
  std::uint64_t offset;    // samples of that epoch before this step (since the clock began, in epoch 0)
  std::uint64_t position;  // samples of the phase before this step, left-out ones included
  std::uint64_t rows;      // of all ranks
  std::uint64_t first;     // position of this rank's first row
  std::uint64_t own;       // rows of this rank
};

struct Clock {
  std::uint64_t left = 0;
  std::uint64_t size = 0;
  std::uint64_t global_rows = 1;
  std::uint64_t rank_start = 0;  // rows of a step that belong to lower ranks
  std::uint64_t rank_rows = 1;
  bool drop_last = false;
  std::uint64_t start = 0;  // position of the phase at which the clock begins

  bool operator==(const Clock&) const = default;

  void check() const {
    if (global_rows == 0 || size == 0) throw std::invalid_argument("a clock needs rows and an epoch size");
    if (drop_last && size < global_rows)
      throw std::invalid_argument("drop_last leaves no step: an epoch has fewer samples than one global batch");
    if (start > most_positions) throw std::invalid_argument("a clock begins behind 2^63 samples");
  }

  std::uint64_t steps_in(std::uint64_t samples) const {
    return drop_last ? samples / global_rows : samples / global_rows + (samples % global_rows != 0);
  }

  Step step(std::uint64_t number) const {
    const auto first_epoch = steps_in(left);
    Step step{};
    step.position = start;
    auto within = number;
    auto samples = left;
    if (number >= first_epoch) {
      const auto later = number - first_epoch;
      step.epoch = 1 + later / steps_in(size);
      within = later % steps_in(size);
      samples = size;
      if (left > most_positions - start || step.epoch - 1 > (most_positions - start - left) / size) throw too_far();
      step.position += left + (step.epoch - 1) * size;
    }
    step.offset = within * global_rows;
    if (step.offset >= most_positions - step.position) throw too_far();
    step.position += step.offset;
    step.rows = std::min(global_rows, samples - step.offset);
    if (step.rows > most_positions - step.position) throw too_far();
    const auto start = std::min(rank_start, step.rows);
    step.first = step.position + start;
    step.own = std::min(rank_rows, step.rows - start);
    return step;
  }

  // The clock that begins at a step of this one, with steps of another size; the step is where it begins.
  std::pair<Clock, Step> resized(std::uint64_t number, std::uint64_t rows, std::uint64_t own_start, std::uint64_t own) const {
    const auto begun = step(number);
    const auto samples = begun.epoch == 0 ? left : size;
    return {Clock{samples - begun.offset, size, rows, own_start, own, drop_last, begun.position}, begun};
  }

  // The step that uses a position behind the start, or the first one after it where drop_last leaves it out.
  std::uint64_t number_of(std::uint64_t position) const {
    position -= start;
    if (position < left) return std::min(position / global_rows, steps_in(left));
    const auto later = position - left;
    const auto within = std::min(later % size / global_rows, steps_in(size));
    return steps_in(left) + later / size * steps_in(size) + within;
  }

 private:
  static std::out_of_range too_far() { return std::out_of_range("a step so far ahead that its position is over 2^63"); }
};

}  // namespace millstream
