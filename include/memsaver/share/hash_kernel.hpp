// XXH64 on the device: a kernel whose threads hash 64 KiB each.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/device.hpp"
#include "memsaver/share/xxh64.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace memsaver::inline v0_3::detail {

inline constexpr std::size_t hashed_at_once = 64_KiB;
inline constexpr unsigned hash_threads = 128;

// sum = rotl(sum + word * p2, 31) * p1
#define MEMSAVER_ROUND(sum, word)                                                                                      \
    "mad.lo.u64 " sum ", " word ", %p2, " sum "; "                                                                     \
    "shl.b64 %x, " sum ", 31; shr.u64 %y, " sum ", 33; or.b64 " sum ", %x, %y; "                                       \
    "mul.lo.u64 " sum ", " sum ", %p1;\n"

// hash = (hash ^ round(0, sum)) * p1 + p4
#define MEMSAVER_MERGE(sum)                                                                                            \
    "mov.u64 %w0, 0;\n" MEMSAVER_ROUND("%w0", sum) "xor.b64 %hash, %hash, %w0; mad.lo.u64 %hash, %hash, %p1, %p4;\n"

/// memsaver_hash(from, to, parts): thread t writes the hash of part t, which begins at from + t * 64 KiB, to to + t
/// * 8. `from` is aligned to 16. Four sums take 8 bytes each of every 32, as in xxh64.hpp.
inline constexpr const char* hash_kernel_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry memsaver_hash(.param .u64 from, .param .u64 to, .param .u64 parts)
{
    .reg .pred %more;
    .reg .b32 %t<3>;
    .reg .b64 %from, %end, %to, %parts, %i, %p1, %p2, %p3, %p4, %hash, %x, %y;
    .reg .b64 %a<4>, %w<4>;

    ld.param.u64 %from, [from];
    ld.param.u64 %to, [to];
    ld.param.u64 %parts, [parts];
    mov.u32 %t0, %ctaid.x;
    mov.u32 %t1, %ntid.x;
    mov.u32 %t2, %tid.x;
    mul.wide.u32 %i, %t0, %t1;
    cvt.u64.u32 %x, %t2;
    add.u64 %i, %i, %x;
    setp.ge.u64 %more, %i, %parts;
    @%more bra END;
    cvta.to.global.u64 %from, %from;
    cvta.to.global.u64 %to, %to;
    shl.b64 %x, %i, 16;
    add.u64 %from, %from, %x;
    add.u64 %end, %from, 65536;
    shl.b64 %x, %i, 3;
    add.u64 %to, %to, %x;

    mov.u64 %p1, 0x9E3779B185EBCA87;
    mov.u64 %p2, 0xC2B2AE3D27D4EB4F;
    mov.u64 %p3, 0x165667B19E3779F9;
    mov.u64 %p4, 0x85EBCA77C2B2AE63;
    add.u64 %a0, %p1, %p2;
    mov.u64 %a1, %p2;
    mov.u64 %a2, 0;
    sub.u64 %a3, %a2, %p1;
LOOP:
    ld.global.v2.u64 {%w0, %w1}, [%from];
    ld.global.v2.u64 {%w2, %w3}, [%from+16];
    add.u64 %from, %from, 32;
)" MEMSAVER_ROUND("%a0", "%w0") MEMSAVER_ROUND("%a1", "%w1") MEMSAVER_ROUND("%a2", "%w2") MEMSAVER_ROUND("%a3", "%w3")
    R"(
    setp.lt.u64 %more, %from, %end;
    @%more bra LOOP;

    shl.b64 %x, %a0, 1; shr.u64 %y, %a0, 63; or.b64 %hash, %x, %y;
    shl.b64 %x, %a1, 7; shr.u64 %y, %a1, 57; or.b64 %x, %x, %y; add.u64 %hash, %hash, %x;
    shl.b64 %x, %a2, 12; shr.u64 %y, %a2, 52; or.b64 %x, %x, %y; add.u64 %hash, %hash, %x;
    shl.b64 %x, %a3, 18; shr.u64 %y, %a3, 46; or.b64 %x, %x, %y; add.u64 %hash, %hash, %x;
)" MEMSAVER_MERGE("%a0") MEMSAVER_MERGE("%a1") MEMSAVER_MERGE("%a2") MEMSAVER_MERGE("%a3") R"(
    add.u64 %hash, %hash, 65536;
    shr.u64 %x, %hash, 33; xor.b64 %hash, %hash, %x; mul.lo.u64 %hash, %hash, %p2;
    shr.u64 %x, %hash, 29; xor.b64 %hash, %hash, %x; mul.lo.u64 %hash, %hash, %p3;
    shr.u64 %x, %hash, 32; xor.b64 %hash, %hash, %x;
    st.global.u64 [%to], %hash;
END:
    ret;
}
)";

#undef MEMSAVER_ROUND
#undef MEMSAVER_MERGE

inline void hash_on_host(const std::array<std::uint64_t, 3>& arguments) {
    const auto* const from = reinterpret_cast<const char*>(arguments[0]); // NOLINT(performance-no-int-to-ptr)
    auto* const to = reinterpret_cast<char*>(arguments[1]);               // NOLINT(performance-no-int-to-ptr)
    for (std::size_t i = 0; i < arguments[2]; ++i) {
        const std::uint64_t hash = xxh64(from + i * hashed_at_once, hashed_at_once);
        std::memcpy(to + i * sizeof hash, &hash, sizeof hash);
    }
}

inline constexpr KernelCode hash_kernel{"memsaver_hash", hash_kernel_ptx, hash_on_host};

} // namespace memsaver::inline v0_3::detail
