// The scope in which the shim does not intercept this thread's driver calls and symbol look-ups.
#pragma once

namespace tms {

class [[nodiscard]] DriverBypass {
public:
    DriverBypass() noexcept { ++depth(); }
    DriverBypass(const DriverBypass&) = delete;
    DriverBypass& operator=(const DriverBypass&) = delete;
    ~DriverBypass() { --depth(); }

    [[nodiscard]] static bool active() noexcept { return depth() != 0; }

private:
    static int& depth() noexcept {
        thread_local int mine = 0;
        return mine;
    }
};

} // namespace tms
