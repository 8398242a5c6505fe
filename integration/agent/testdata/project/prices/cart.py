class Cart:
    def __init__(self, discount=0):
        """discount is in percent."""
        self.discount = discount
        self.prices = []

    def add(self, price):
        self.prices.append(price)
        return self

    def total(self):
        sum = 0
        for price in self.prices:
            sum += price
        return sum * (100 + self.discount) // 100
