// Which kind of Status a CUresult is. Works on numbers, so that it depends neither on the CUDA headers nor on their
// age; the numbers are fixed by the driver's binary interface.
#pragma once

#include "memsaver/base/base.hpp"

namespace memsaver::inline v0_1 {

/// `gone` are the answers after which, by the manual, the process's further CUDA work fails as well, and those that say
/// that the context or the driver itself is no longer there. An answer that may pass with time or with another
/// argument is `other`.
constexpr StatusKind cuda_status_kind(int code) noexcept {
    switch (code) {
    case 0: return StatusKind::ok;
    case 2: return StatusKind::out_of_memory;
    case 3:   // NOT_INITIALIZED: it was, so this is a forked child, where no handle of the parent works
    case 4:   // DEINITIALIZED: the process is exiting
    case 46:  // DEVICE_UNAVAILABLE
    case 201: // INVALID_CONTEXT: ours was valid, so somebody reset the device
    case 214: // ECC_UNCORRECTABLE
    case 220: // NVLINK_UNCORRECTABLE
    case 226: // CONTAINED
    case 700: // ILLEGAL_ADDRESS
    case 702: // LAUNCH_TIMEOUT
    case 709: // CONTEXT_IS_DESTROYED
    case 710: // ASSERT
    case 714: // HARDWARE_STACK_ERROR
    case 715: // ILLEGAL_INSTRUCTION
    case 716: // MISALIGNED_ADDRESS
    case 717: // INVALID_ADDRESS_SPACE
    case 718: // INVALID_PC
    case 719: // LAUNCH_FAILED
    case 721: // TENSOR_MEMORY_LEAK
    case 802: // SYSTEM_NOT_READY
    case 805: // MPS_CONNECTION_FAILED
    case 806: // MPS_RPC_FAILURE
    case 810: // MPS_CLIENT_TERMINATED
    case 911: // EXTERNAL_DEVICE
        return StatusKind::gone;
    default: return StatusKind::other;
    }
}

} // namespace memsaver::inline v0_1
