"""The cost of records, at prices of the day on which a stream started: from the operator's file, else from genai-prices.

rates.py       prices of one model on one day, and what the tokens of a record cost by them
catalogue.py   finds them in genai-prices
sellers.py     the seller whose list holds for an upstream
price_file.py  reads them from the operator's file (--prices), with discounts on the list
price_times.py   the days, weekdays and hours at which an entry of that file holds
pricing.py     chooses between the two for a record; adds what is billed apart from tokens
"""

from streamgauge.prices.pricing import Prices

__all__ = ["Prices"]
