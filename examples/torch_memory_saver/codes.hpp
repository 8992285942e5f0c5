// Translates exceptions to CUDA error codes, which the runtime and the driver share. The only place that defines the
// numbers.
#pragma once

#include "memsaver/core/core.hpp"

#include <pthread.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>

namespace tms {

/// cudaError_t and CUresult, which are ints in the ABI: building this requires no toolkit.
using Code = int;

inline constexpr Code success = 0;
inline constexpr Code invalid_value = 1;
inline constexpr Code memory_allocation = 2;
inline constexpr Code initialization_error = 3;
inline constexpr Code no_device = 100;
inline constexpr Code unknown = 999;

/// Returns the code of a failed driver call if it is a CUDA code, not a system code.
inline Code code_of(const memsaver::Status& status) noexcept {
    return std::string_view{status.name}.starts_with("CUDA_") && status.code != 0 ? status.code : unknown;
}

/// Runs `act` and returns its result as a code. Does not throw; passes the text of a failure to `say`.
template <class Act, class Say>
Code as_code(const Act& act, const Say& say) noexcept {
    struct Uncancelled { // a thread cancelled inside (pthread_cancel) would end the program
        Uncancelled() noexcept { (void)::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); }
        ~Uncancelled() { (void)::pthread_setcancelstate(before, nullptr); }
        int before = 0;
    };
    const Uncancelled whole;
    const auto answer = [&](const auto& error, Code code) noexcept {
        try {
            say(error.what());
        } catch (...) { // no host memory for the text
        }
        return code;
    };
    try {
        act();
        return success;
    } catch (const std::bad_alloc& error) { // includes OutOfMemory
        return answer(error, memory_allocation);
    } catch (const memsaver::OutOfHostMemory& error) {
        return answer(error, memory_allocation);
    } catch (const memsaver::OutOfAddresses& error) { // as the runtime reports it
        return answer(error, memory_allocation);
    } catch (const memsaver::Misuse& error) {
        return answer(error, invalid_value);
    } catch (const memsaver::Unavailable& error) {
        return answer(error, no_device);
    } catch (const memsaver::Error& error) {
        return answer(error, code_of(error.status()));
    } catch (const std::exception& error) {
        return answer(error, unknown);
    } catch (...) {
        return unknown;
    }
}

} // namespace tms
