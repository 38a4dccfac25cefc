WHAT = "first estimate on a machine, nothing compiled"
WANTED = "under 3 s"
_CODE = (
    "import os, sys; os.environ['NPUSIM_CACHE'] = '{out}'; "
    "sys.argv[1:] = ['estimate', *sys.argv[1:]]; from npusim.cli import main; sys.exit(main())"
)
COMMANDS = {
    "gcn-cora, stagr": ["-c", _CODE, "gcn-cora", "-t", "stagr"],
    "gat-cora, effop": ["-c", _CODE, "gat-cora", "-t", "effop"],
    "resnet-50": ["-c", _CODE, "resnet-50"],
}
LIMIT_S, TURNS = 120, 1
