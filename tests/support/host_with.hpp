// A HostDriver with some calls changed, as a handle.
#pragma once

#include "memsaver/driver/device_around.hpp"
#include "memsaver/host/host.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace test {

/// `Changed` is a DeviceAround that overrides some calls; it is made from the HostDriver and `arguments`.
template <class Changed>
struct HostWith : memsaver::AnyDriver {
    explicit HostWith(std::size_t capacity, memsaver::HostDriverOptions options = {})
        : HostWith{memsaver::HostDriver{capacity, options}} {}
    template <class... Arguments>
    explicit HostWith(memsaver::HostDriver host, Arguments&&... arguments)
        : AnyDriver{std::make_shared<Changed>(host, std::forward<Arguments>(arguments)...)}, host_{std::move(host)} {}

    /// The unchanged machine.
    [[nodiscard]] const memsaver::HostDriver& host() const noexcept { return host_; }
    [[nodiscard]] Changed& changed() const noexcept { return static_cast<Changed&>(machine()); }
    [[nodiscard]] std::vector<std::string> violations() const { return host_.violations(); }
    [[nodiscard]] memsaver::HostCounts counts() const noexcept { return host_.counts(); }

private:
    memsaver::HostDriver host_;
};
} // namespace test
