// Writes JSON. Cannot read it.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace engine {

inline std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            out += escape;
        } else {
            out += c;
        }
    }
    return out + '"';
}
inline std::string json_text(double value) {
    if (!std::isfinite(value)) return "null";
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
}

/// An object that keeps its keys in insertion order.
class Json {
public:
    Json& put(std::string_view key, std::string_view value) { return put_raw(key, json_text(value)); }
    Json& put(std::string_view key, const char* value) { return put(key, std::string_view{value}); }
    Json& put(std::string_view key, bool value) { return put_raw(key, value ? "true" : "false"); }
    Json& put(std::string_view key, double value) { return put_raw(key, json_text(value)); }
    template <std::integral T>
    Json& put(std::string_view key, T value) {
        return put_raw(key, std::to_string(value));
    }
    Json& put(std::string_view key, const Json& value) { return put_raw(key, value.text()); }
    Json& put(std::string_view key, const std::vector<Json>& values) {
        return put_list(key, values, [](const Json& value) { return value.text(); });
    }
    Json& put(std::string_view key, const std::vector<double>& values) {
        return put_list(key, values, [](double value) { return json_text(value); });
    }

    [[nodiscard]] std::string text() const { return '{' + members_ + '}'; }

private:
    Json& put_raw(std::string_view key, const std::string& value) {
        if (!members_.empty()) members_ += ", ";
        members_ += json_text(key) + ": " + value;
        return *this;
    }
    template <class Values, class Text>
    Json& put_list(std::string_view key, const Values& values, Text&& text) {
        std::string list;
        for (const auto& value : values) list += (list.empty() ? "" : ", ") + text(value);
        return put_raw(key, '[' + list + ']');
    }

    std::string members_;
};

} // namespace engine
