WHAT = "event engine's table of resnet-50"
WANTED = "6 s, advice on request"
COMMANDS = {"": ["-m", "npusim", "estimate", "resnet-50", "--engine", "event"]}
