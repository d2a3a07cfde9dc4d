/* SPDX-License-Identifier: MIT */
#include <headrow/headrow.h>
#include <string.h>

uint64_t hr_digest(uint64_t digest, const float *logits, size_t count) {
  const uint64_t prime = UINT64_C(0x100000001b3);
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = 0x7fc00000u;
    if (logits[i] == logits[i]) memcpy(&bits, &logits[i], sizeof bits);
    for (int byte = 0; byte < 4; byte++) digest = (digest ^ (bits >> 8 * byte & 0xff)) * prime;
  }
  return digest;
}
