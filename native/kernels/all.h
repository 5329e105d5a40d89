// The kernels of one instruction set, by name: for the table and for tests.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace tercet::TERCET_ISA {

void linear_bf16(const Linear&, Range panels, Range rows);     // linear_bf16.cpp
void linear_int8(const Linear&, Range panels, Range rows);     // linear_int8.cpp
void linear_grouped(const Linear&, Range panels, Range rows);  // linear_grouped.cpp
void norm(const Norm&, Range rows);                            // rows.cpp
void convert(const Convert&, Range rows);
void head_norm(const HeadNorm&, Range rows);
void angles(const Angles&, Range rows);
void rope(const Rope&, Range rows);
void add(const Binary&, Range rows);
void glu(const Binary&, Range rows);
void embed(const Embed&, Range rows);                          // embed.cpp
void append(const Append&, Range rows);                        // append.cpp
void attend(const Attend&, const AttendUnit&);                 // attend.cpp
void merge(const Attend&, const MergeUnit&);
TopTwo top_two(const float* x, int64_t n);                     // scores.cpp
double masses(const float* x, int64_t n, float top, float heat, float* to);
int64_t within(const float* x, int64_t n, float low, float high, int32_t* ids);
int64_t count_at_least(const float* x, int64_t n, float least);
int64_t keep(const float* x, const float* masses, int64_t n, float least, const Kept& to);
Above above(const float* x, const float* masses, int64_t n, float least);
int64_t count_before(const float* x, int64_t n, int64_t id);
int64_t group_maxima(const float* x, int64_t n, int64_t members, float* to);
int64_t contenders(const Contest&, Range ids, int32_t* to);
uint64_t sum_part(const uint8_t* from, int64_t bytes);         // sums.cpp
uint64_t copy_part(const uint8_t* from, uint8_t* to, int64_t bytes, bool past_caches);
void move_part(const uint8_t* from, uint8_t* to, int64_t bytes, bool past_caches);

// Row n of a packed grouped weight in float32 (linear_grouped.cpp), for embed.
void unpack_grouped_row(Format, int64_t n, int64_t k, const uint8_t* weight, int64_t row, float* to);

}  // namespace tercet::TERCET_ISA
