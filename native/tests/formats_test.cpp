#include "check.h"

CASE(panels_cover_all_outputs) {
  CHECK(tercet::num_panels(1) == 1 && tercet::num_panels(32) == 1 && tercet::num_panels(33) == 2);
  CHECK(tercet::padded_k(1) == 64 && tercet::padded_k(576) == 576 && tercet::padded_k(577) == 640);
}
