import unittest

from prices.cart import Cart


class TestCart(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(Cart().add(12).add(30).total(), 42)

    def test_discount(self):
        self.assertEqual(Cart(discount=5).add(20).add(13).total(), 31)

    def test_negative(self):
        with self.assertRaises(ValueError):
            Cart().add(-1)


if __name__ == "__main__":
    unittest.main()
