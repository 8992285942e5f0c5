// The driver calls that a pause and a resume need at least: the baseline. Independent of savers.
#pragma once

#include "bench.hpp"

#include <cstddef>
#include <vector>

namespace bench {

/// A range of addresses that is mapped and unmapped in handles of `split` bytes. Does not wait for the device.
template <Driver D>
class Floor {
public:
    Floor(const D& driver, std::size_t bytes, std::size_t split) : driver_{driver} {
        std::size_t granularity = 0;
        check(driver_.granularity(granularity), "query the granularity");
        bytes_ = align_up(bytes, granularity);
        split_ = align_up(split, granularity);
        handles_.resize((bytes_ + split_ - 1) / split_);
        check(driver_.reserve(bytes_, granularity, base_), "reserve addresses");
    }
    Floor(const Floor&) = delete;
    Floor& operator=(const Floor&) = delete;
    ~Floor() { (void)driver_.unreserve(base_, bytes_); }

    void resume() {
        for (std::size_t i = 0; i < handles_.size(); ++i) check(driver_.create(size(i), handles_[i]), "create");
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            check(driver_.map(base_ + i * split_, size(i), handles_[i]), "map");
        }
        check(driver_.allow_access(base_, bytes_), "allow access");
    }
    void pause() {
        check(driver_.unmap(base_, bytes_), "unmap");
        for (const PageHandle handle : handles_) check(driver_.release(handle), "release");
    }

    [[nodiscard]] std::size_t handles() const { return handles_.size(); }

private:
    [[nodiscard]] std::size_t size(std::size_t i) const { return std::min(split_, bytes_ - i * split_); }

    D driver_;
    std::size_t bytes_ = 0;
    std::size_t split_ = 0;
    Address base_ = 0;
    std::vector<PageHandle> handles_;
};

} // namespace bench
