// Exceptions as the error codes of CUDA, which the runtime and the driver share. The only place that knows numbers.
#pragma once

#include "memsaver/core/core.hpp"

#include <exception>
#include <new>
#include <string>
#include <string_view>

namespace tms {

/// cudaError_t and CUresult, which are ints to whoever calls: no toolkit is needed to build this.
using Code = int;

inline constexpr Code success = 0;
inline constexpr Code invalid_value = 1;
inline constexpr Code memory_allocation = 2;
inline constexpr Code initialization_error = 3;
inline constexpr Code no_device = 100;
inline constexpr Code unknown = 999;

/// A failed driver call's own code, where it is one of CUDA's and not of the system's.
inline Code code_of(const memsaver::Status& status) noexcept {
    return std::string_view{status.name}.starts_with("CUDA_") && status.code != 0 ? status.code : unknown;
}

/// Runs `act` and answers what became of it. Nothing is thrown; `say` is told the text of a failure.
template <class Act, class Say>
Code as_code(const Act& act, const Say& say) noexcept {
    const auto answer = [&](const auto& error, Code code) noexcept {
        try {
            say(error.what());
        } catch (...) { // there is no host memory for the words
        }
        return code;
    };
    try {
        act();
        return success;
    } catch (const std::bad_alloc& error) { // OutOfMemory is one
        return answer(error, memory_allocation);
    } catch (const memsaver::OutOfHostMemory& error) {
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
