"""What the compiler writes on its way, kept to compare two commits by: graphs after each stage,
guards, breaks, kernel keys and LLVM text. What is called a refactor leaves all of it equal.
"""
