#pragma once

#include <catch2/internal/catch_test_registry.hpp>

#include "cases.h"

/// One test for each file of a family's cases, so that whoever adds a family adds its file and nothing else.
namespace oometer {

class FamilyTest : public Catch::ITestInvoker {
 public:
  using Check = void (*)(const ReferenceCase&);
  FamilyTest(std::filesystem::path file, Groups groups, Check check)
      : file_(std::move(file)), groups_(groups), check_(check) {}
  void invoke() const override {
    const std::vector<ReferenceCase> cases = read_cases(file_, groups_);
    CHECK_FALSE(cases.empty());
    for (const ReferenceCase& c : cases) check_(c);
  }

 private:
  std::filesystem::path file_;
  Groups groups_;
  Check check_;
};

/// What TEST_CASE does, for each FAMILY/KIND.jsonl: the test is called FAMILY and `name`, and has the tag [FAMILY].
struct FamilyTests {
  FamilyTests(const char* kind, Groups groups, FamilyTest::Check check, const char* name) {
    for (const std::filesystem::path& file : files_of_families(kind)) {
      const std::string family = file.parent_path().filename().string();
      const std::string title = family + ": " + name, tags = "[reference][" + family + "]";
      const Catch::AutoReg registered(Catch::Detail::make_unique<FamilyTest>(file, groups, check),
                                      CATCH_INTERNAL_LINEINFO, {}, {title, tags});
    }
  }
};

}  // namespace oometer
