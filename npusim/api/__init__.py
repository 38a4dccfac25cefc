"""The calls of `import npusim`, by what they are for; `npusim/__init__.pyi` lists them."""
