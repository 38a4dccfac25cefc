"""What a person reads: tables and charts for the terminal.

Like the display of a petrol pump: the pump counts in pulses, the display says litres and money. Everything
here turns a finished result into something to look at, and computes nothing.
"""
