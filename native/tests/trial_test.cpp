// The trial of doubtful kernels finds them right when they are, wrong when they are not.
#include "trial.h"

#include <cmath>

#include "check.h"

CASE(a_trial_tells_right_from_wrong) {
  using namespace tercet;
  CHECK(agree(kernels, *portable_kernels()));
  Kernels wrong = kernels;
  wrong.linear_int8 = [](const Linear& linear, Range panels, Range rows) {
    portable_kernels()->linear_int8(linear, panels, rows);
    linear.y[rows.begin * linear.y_stride + 3] += 0.001f;
  };
  CHECK(!agree(wrong, *portable_kernels()));
  wrong = kernels;
  wrong.linear_bf16 = [](const Linear& linear, Range panels, Range rows) {
    portable_kernels()->linear_bf16(linear, panels, rows);
    linear.y[rows.begin * linear.y_stride] = NAN;
  };
  CHECK(!agree(wrong, *portable_kernels()));
}
