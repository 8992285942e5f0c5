// Device memory that allocations must leave free: a driver that refuses to go below the margin. Independent of who
// allocates.
#pragma once

#include "memsaver/driver/device_around.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace tms {

/// May change at any time. Not in effect during a resume, which restores memory that the program already owns.
class Margin {
public:
    /// Suspends the margin as long as it lives.
    class [[nodiscard]] Lifted {
    public:
        explicit Lifted(Margin& margin) noexcept : margin_{margin} { ++margin_.lifted_; }
        Lifted(const Lifted&) = delete;
        Lifted& operator=(const Lifted&) = delete;
        ~Lifted() { --margin_.lifted_; }

    private:
        Margin& margin_;
    };

    void set(std::size_t bytes) noexcept { bytes_ = bytes; }
    [[nodiscard]] std::size_t bytes() const noexcept { return lifted_ == 0 ? bytes_.load() : 0; }

private:
    std::atomic<std::size_t> bytes_{0};
    std::atomic<int> lifted_{0};
};

/// A machine whose `create` returns out_of_memory if it would leave less than the margin free.
class DeviceWithMargin final : public memsaver::DeviceAround {
public:
    DeviceWithMargin(memsaver::AnyDriver inner, std::shared_ptr<const Margin> margin)
        : DeviceAround{std::move(inner)}, margin_{std::move(margin)} {}

    memsaver::Status create(std::size_t bytes, memsaver::PageHandle& pages) noexcept override {
        if (const std::size_t margin = margin_->bytes(); margin != 0) {
            memsaver::DeviceMemory memory;
            if (const memsaver::Status status = inner().memory(memory); !status.ok()) return status;
            if (memory.free_bytes < bytes || memory.free_bytes - bytes < margin) {
                return {memsaver::StatusKind::out_of_memory, 0, "less than the memory margin would be left free"};
            }
        }
        return DeviceAround::create(bytes, pages);
    }

private:
    std::shared_ptr<const Margin> margin_;
};

/// The driver of such a machine.
class WithMargin : public memsaver::AnyDriver {
public:
    WithMargin(memsaver::AnyDriver driver, std::shared_ptr<const Margin> margin)
        : AnyDriver{std::make_shared<DeviceWithMargin>(std::move(driver), std::move(margin))} {}
};

} // namespace tms
