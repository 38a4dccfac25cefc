WHAT = "first estimate on a machine, no kernel compiled"
WANTED = "under 3 s"
_CODE = (
    "import os, sys; os.environ['NPUSIM_CACHE'] = '{out}'; "
    "sys.argv[1:] = ['estimate', *sys.argv[1:]]; from npusim.cli import main; sys.exit(main())"
)
COMMANDS = {
    "gcn-cora, stagr": ["-c", _CODE, "gcn-cora", "-t", "stagr"],
    "resnet-50": ["-c", _CODE, "resnet-50"],
}
BEFORE_S = {"gcn-cora, stagr": 60, "resnet-50": 60}
TURNS = 1
