"""Objects and their attributes; no two objects have the same ones."""

from __future__ import annotations

_ROWS = """
cat: animal legs furry indoors
dog: animal legs furry indoors outdoors
mouse: animal legs furry handheld
horse: animal legs furry outdoors heavy
cow: animal legs furry outdoors heavy edible
elephant: animal legs heavy
sheep: animal legs furry outdoors edible white
eagle: animal legs flying
duck: animal legs flying swimming edible
penguin: animal legs swimming
frog: animal legs swimming handheld green
shark: animal swimming heavy sharp
salmon: animal swimming edible
snake: animal handheld sharp
bee: animal legs flying handheld sharp
butterfly: animal legs flying handheld
ant: animal legs handheld
tree: plant outdoors heavy wooden green
grass: plant outdoors green
rose: plant outdoors handheld sharp
cactus: plant indoors sharp green
apple: plant edible handheld round
lettuce: plant edible handheld green
banana: plant edible handheld
bread: edible handheld indoors
egg: edible handheld round white
salt: edible white
knife: handheld metal sharp indoors
saw: handheld metal sharp outdoors
spoon: handheld metal indoors
hammer: handheld metal wooden
pencil: handheld wooden sharp indoors
coin: handheld metal round
ring: handheld metal round worn
watch: handheld metal round worn electric
hat: worn outdoors
coat: worn furry outdoors
sock: worn indoors
chair: furniture legs wooden indoors
table: furniture legs wooden indoors heavy
bed: furniture legs wooden indoors heavy white
sofa: furniture furry indoors heavy
lamp: furniture electric indoors
fridge: furniture electric indoors heavy metal white
phone: handheld electric
radio: electric indoors
car: wheels metal heavy outdoors
bicycle: wheels metal outdoors
train: wheels metal heavy electric outdoors
plane: wheels metal heavy flying outdoors
boat: swimming wooden heavy outdoors
ball: handheld round outdoors
"""

TABLE: dict[str, frozenset[str]] = {
    name: frozenset(attributes.split()) for name, attributes in (row.split(":") for row in _ROWS.strip().splitlines())
}
OBJECTS = tuple(TABLE)
ATTRIBUTES = tuple(sorted(set().union(*TABLE.values())))
