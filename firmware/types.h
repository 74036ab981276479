/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Integer names and byte orders, for the kernel's eBPF compiler and for the
 * native one.
 */
#ifndef OMNES_TYPES_H
#define OMNES_TYPES_H

#ifdef __bpf__
#include <linux/types.h>
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
#else
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
#endif

/* Precedes a loop of known length, so that the verifier has less to follow. */
#ifdef __bpf__
#define OMNES_UNROLL _Pragma("unroll")
#else
#define OMNES_UNROLL
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define omnes_be16(x) __builtin_bswap16(x)
#define omnes_be32(x) __builtin_bswap32(x)
#define omnes_be64(x) __builtin_bswap64(x)
#define omnes_le64(x) (x)
#else
#define omnes_be16(x) (x)
#define omnes_be32(x) (x)
#define omnes_be64(x) (x)
#define omnes_le64(x) __builtin_bswap64(x)
#endif

#endif
