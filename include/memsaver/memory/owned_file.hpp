// The owner of one file.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <optional>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns an open file without a name, or nothing. Move-only; closes it when it dies, and its bytes are gone.
template <Files D>
class OwnedFile {
public:
    OwnedFile() = default;
    /// Throws what the driver's status stands for.
    OwnedFile(D driver, const std::string& directory) {
        const Status status = driver.open_file(directory.c_str(), file_);
        if (!status.ok()) raise(status, "open a file for a backup", "in " + directory);
        driver_ = std::move(driver);
    }
    OwnedFile(OwnedFile&& other) noexcept { swap(other); }
    OwnedFile& operator=(OwnedFile&& other) noexcept {
        OwnedFile{std::move(other)}.swap(*this);
        return *this;
    }
    ~OwnedFile() {
        if (driver_) (void)driver_->close_file(file_);
    }

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }
    [[nodiscard]] FileRef get() const noexcept { return file_; }

private:
    void swap(OwnedFile& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(file_, other.file_);
    }

    std::optional<D> driver_;
    FileRef file_;
};

} // namespace memsaver::inline v0_1
