// A function of a library that the process may load later: looked for until it is found.
#pragma once

#include <atomic>

namespace tms {

/// `look_up` answers the address that a name has, or null. What it finds stays; that there is nothing does not:
/// programs may ask before they bring the library.
template <class Function, void* (*look_up)(const char*) noexcept>
class LateFunction {
public:
    constexpr explicit LateFunction(const char* name) noexcept : name_{name} {}

    Function* find() noexcept {
        void* address = found_.load();
        if (address == nullptr) found_ = address = look_up(name_);
        return reinterpret_cast<Function*>(address);
    }

private:
    const char* name_;
    std::atomic<void*> found_{nullptr};
};

} // namespace tms
