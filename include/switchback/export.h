/* SPDX-License-Identifier: Apache-2.0 */
/* Entry zone: which symbols the shared library exports. Everything else is hidden. */
#ifndef SWITCHBACK_EXPORT_H
#define SWITCHBACK_EXPORT_H

#if defined(__GNUC__) || defined(__clang__)
#define SWITCHBACK_API __attribute__((visibility("default")))
#else
#define SWITCHBACK_API
#endif

#endif
