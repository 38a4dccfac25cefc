WHAT = "sixteen designs on the command line"
WANTED = "1 s"
_SPACE = {
    "schema": "npusim.space/1",
    "workload": "gcn-cora",
    "techniques": "stagr",
    "keep": "all",
    "axes": {
        "npu.sram.per_tile": {"values": ["512KiB", "1MiB", "2MiB", "4MiB"]},
        "npu.tiles": {"values": [1, 2, 4, 6]},
    },
}
_CODE = (
    f"open('sixteen.yaml', 'w').write(\"{_SPACE}\"); import sys; "
    "sys.argv[1:] = ['sweep', 'sixteen.yaml', '-o', '{out}', '--quiet']; "
    "from npusim.cli import main; sys.exit(main())"
)
COMMANDS = {"": ["-c", _CODE]}
