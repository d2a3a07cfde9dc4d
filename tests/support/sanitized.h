/* SPDX-License-Identifier: MIT
 * Whether this is built with AddressSanitizer, which takes memory and addresses of its own. */
#ifndef HR_TESTS_SUPPORT_SANITIZED_H
#define HR_TESTS_SUPPORT_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) /* gcc */
#define WITH_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) /* clang */
#define WITH_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef WITH_ADDRESS_SANITIZER
#define WITH_ADDRESS_SANITIZER 0
#endif

#endif
