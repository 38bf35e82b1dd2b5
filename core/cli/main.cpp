#include "cli/command.h"

int main(int argc, char** argv) { return oometer::cli::command(argc, argv); }
