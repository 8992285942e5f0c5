// A kernel that copies bytes between the device and pinned host pages, as PTX: the driver compiles it for the device
// that it finds, so that users need no nvcc.
#pragma once

#include "memsaver/driver/device.hpp"

namespace memsaver::inline v0_3::detail {

/// Bytes that a kernel thread moves at once; also the required alignment of both addresses.
inline constexpr unsigned copy_vector = 16;
/// A small number, because these blocks keep multiprocessors from other work, but enough for the speed of the link
/// (measured on an H200 for 16 GiB: 64 blocks take 340 ms, 16 blocks 366, an unhindered copy engine 312).
inline constexpr unsigned copy_blocks = 64;
inline constexpr unsigned copy_threads = 512;

/// memsaver_copy(to, from, vectors, tail): thread t moves vectors t, t + threads, ..., four at a time, so that each
/// thread has four loads in flight over the link. Then the first `tail` threads move one byte each.
inline constexpr const char* copy_kernel_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry memsaver_copy(.param .u64 to, .param .u64 from, .param .u64 vectors, .param .u32 tail)
{
    .reg .pred %more, %done;
    .reg .b32 %t<4>, %tail, %byte;
    .reg .b32 %a<4>, %b<4>, %c<4>, %d<4>;
    .reg .b64 %to, %from, %n, %i, %step, %step4, %last, %x, %y, %offset;

    ld.param.u64 %to, [to];
    ld.param.u64 %from, [from];
    ld.param.u64 %n, [vectors];
    ld.param.u32 %tail, [tail];
    cvta.to.global.u64 %to, %to;
    cvta.to.global.u64 %from, %from;
    mov.u32 %t0, %ctaid.x;
    mov.u32 %t1, %ntid.x;
    mov.u32 %t2, %tid.x;
    mov.u32 %t3, %nctaid.x;
    mul.wide.u32 %i, %t0, %t1;
    cvt.u64.u32 %x, %t2;
    add.u64 %i, %i, %x;
    mul.wide.u32 %step, %t3, %t1;
    shl.b64 %step4, %step, 2;
    mov.u64 %offset, %i;

FOUR:
    mad.lo.u64 %last, %step, 3, %i;
    setp.ge.u64 %done, %last, %n;
    @%done bra ONE;
    shl.b64 %x, %i, 4;
    add.u64 %y, %to, %x;
    add.u64 %x, %from, %x;
    shl.b64 %last, %step, 4;
    ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%x];
    add.u64 %x, %x, %last;
    ld.global.v4.u32 {%b0, %b1, %b2, %b3}, [%x];
    add.u64 %x, %x, %last;
    ld.global.v4.u32 {%c0, %c1, %c2, %c3}, [%x];
    add.u64 %x, %x, %last;
    ld.global.v4.u32 {%d0, %d1, %d2, %d3}, [%x];
    st.global.v4.u32 [%y], {%a0, %a1, %a2, %a3};
    add.u64 %y, %y, %last;
    st.global.v4.u32 [%y], {%b0, %b1, %b2, %b3};
    add.u64 %y, %y, %last;
    st.global.v4.u32 [%y], {%c0, %c1, %c2, %c3};
    add.u64 %y, %y, %last;
    st.global.v4.u32 [%y], {%d0, %d1, %d2, %d3};
    add.u64 %i, %i, %step4;
    bra FOUR;

ONE:
    setp.ge.u64 %done, %i, %n;
    @%done bra TAIL;
    shl.b64 %x, %i, 4;
    add.u64 %y, %to, %x;
    add.u64 %x, %from, %x;
    ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%x];
    st.global.v4.u32 [%y], {%a0, %a1, %a2, %a3};
    add.u64 %i, %i, %step;
    bra ONE;

TAIL:
    cvt.u64.u32 %x, %tail;
    setp.ge.u64 %done, %offset, %x;
    @%done bra END;
    shl.b64 %x, %n, 4;
    add.u64 %x, %x, %offset;
    add.u64 %y, %to, %x;
    add.u64 %x, %from, %x;
    ld.global.u8 %byte, [%x];
    st.global.u8 [%y], %byte;

END:
    ret;
}
)";

inline constexpr KernelCode copy_kernel{"memsaver_copy", copy_kernel_ptx, nullptr};

} // namespace memsaver::inline v0_3::detail
